# Run by cpack before it packs: what Debian keeps elsewhere, or otherwise, than a plain installation.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
# Its libraries lie where the system looks for them.
file(RPATH_REMOVE FILE ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/bin/lockstep)
set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share)
if(EXISTS ${share}/zsh/site-functions)
  file(RENAME ${share}/zsh/site-functions ${share}/zsh/vendor-completions)
endif()
file(GLOB pages ${share}/man/man1/*.1)
if(pages)
  execute_process(COMMAND gzip -9n ${pages} COMMAND_ERROR_IS_FATAL ANY)
endif()
file(REMOVE ${share}/doc/lockstep/LICENSE)
file(WRITE ${share}/doc/lockstep/copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: lockstep

Files: *
Copyright: the authors of Lockstep
License: Apache-2.0
 On Debian systems the text of the licence is in /usr/share/common-licenses/Apache-2.0.
")
