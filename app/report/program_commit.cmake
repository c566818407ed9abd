# cmake -D OUT=FILE -P program_commit.cmake: writes FILE, a source of program_commit(), if its content changes.
# In a clone, git knows the commit. In an archive made by git (a tarball of a release), git has put it into `archived`.
# Otherwise the commit is unknown; the commit of another project whose repository contains this folder does not count.
cmake_minimum_required(VERSION 3.25)
set(archived "$Format:%H$")

cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH tree)
cmake_path(GET tree PARENT_PATH tree)
set(commit "")
if(archived MATCHES "^[0-9a-f]+$")
  set(commit ${archived})
endif()

# Runs git in this tree, also if another user owns it or a git hook started the build. Writes nothing.
foreach(variable GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_PREFIX)
  unset(ENV{${variable}})
endforeach()
set(ENV{GIT_OPTIONAL_LOCKS} 0)
function(ask_git answer ok)
  execute_process(COMMAND git -c safe.directory=* -C ${tree} ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE text
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${answer} "${text}" PARENT_SCOPE)
  if(code EQUAL 0)
    set(${ok} TRUE PARENT_SCOPE)
  else()
    set(${ok} FALSE PARENT_SCOPE)
  endif()
endfunction()
ask_git(folder is_repository rev-parse --show-prefix)
if(is_repository AND folder STREQUAL "")
  ask_git(head has_head rev-parse HEAD)
  # Includes untracked files: they are compiled, too.
  ask_git(changes has_status status --porcelain -- CMakeLists.txt app comm io model)
  if(has_head AND has_status)
    set(commit ${head})
    if(changes)
      string(APPEND commit "-dirty")
    endif()
  endif()
endif()

file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT "// Made by app/report/program_commit.cmake.
#include \"app/report/program_build.hpp\"

const char* lockstep::app::program_commit() noexcept { return \"@commit@\"; }
")
