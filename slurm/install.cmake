# What an installation has, and packages of it: included by CMakeLists.txt.
include(GNUInstallDirs)
install(TARGETS lockstep)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY app/examples DESTINATION ${CMAKE_INSTALL_DOCDIR}/app)
# The documents keep the tree's folders, which their links name. What they link to among the tests is not installed: the
# words stay, the link goes.
foreach(document README.md app/README.md comm/README.md io/README.md io/checkpoints/checkpoint_format.md
    io/shards/shard_schema.md model/README.md model/networks.md slurm/README.md)
  get_filename_component(folder ${document} DIRECTORY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${document})
  file(READ ${document} text)
  string(REGEX REPLACE "\\[([^]]*)\\]\\((\\.\\./)*(tests|\\.github)/[^)]*\\)" "\\1" text "${text}")
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/documents/${document} "${text}")
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/documents/${document} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
endforeach()

install(PROGRAMS slurm/chain slurm/launch slurm/stop_in_time DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep/slurm)
file(GLOB batch_scripts CONFIGURE_DEPENDS slurm/*.sbatch)
install(FILES ${batch_scripts} slurm/attempts slurm/lockstep.def DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep/slurm)
install(FILES slurm/modulefile DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep/modulefiles/lockstep RENAME ${PROJECT_VERSION})

# Manual pages and completions: the program writes them itself, from its options, whenever it has been linked, so that
# whoever has built it can install it. A program for another machine cannot.
if(CMAKE_CROSSCOMPILING)
  message(STATUS "Manual pages and completions: none; `lockstep help --write FOLDER` writes them on the machine itself")
else()
  set(written ${CMAKE_CURRENT_BINARY_DIR}/share)
  add_custom_command(TARGET lockstep POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${written}
    COMMAND ${CMAKE_COMMAND} -E env ASAN_OPTIONS=detect_leaks=0 $<TARGET_FILE:lockstep> help --write ${written}
    BYPRODUCTS ${written}/man/man1/lockstep.1 VERBATIM)
  install(DIRECTORY ${written}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR})
  foreach(shell bash-completion zsh fish)
    install(DIRECTORY ${written}/${shell} DESTINATION ${CMAKE_INSTALL_DATADIR})
  endforeach()
endif()

# cpack -G DEB: what the program is linked with, as dpkg-shlibdeps knows it, and the launcher of its MPI.
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_VENDOR Lockstep)
set(CPACK_PACKAGE_CONTACT "The authors of Lockstep <lockstep@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "training of neural networks on many processes at once")
set(CPACK_PACKAGE_DESCRIPTION "Lockstep trains perceptrons, convolutional and residual networks, LSTM and GPT language models.
Training is data-parallel and synchronous: gradients are summed over MPI, and all ranks make the same step.")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_CURRENT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR TGZ)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(mpi_flavour STREQUAL "mpich")
  set(CPACK_DEBIAN_PACKAGE_DEPENDS mpich)
else()
  set(CPACK_DEBIAN_PACKAGE_DEPENDS openmpi-bin)
endif()
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "slurm-client, environment-modules")
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_SOURCE_DIR}/slurm/debian.cmake)
include(CPack)
