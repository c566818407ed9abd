# cmake -D OUT=FILE -P program_commit.cmake: writes FILE, a source that defines program_commit(), unless it says so already.
# In a clone git knows the commit; in an archive that git has made (a tarball of a release) it stands below. Elsewhere
# nobody knows: a folder inside another project's repository is none of its commits.
cmake_minimum_required(VERSION 3.25)
set(archived "$Format:%H$")

cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH tree)
cmake_path(GET tree PARENT_PATH tree)
set(commit "")
if(archived MATCHES "^[0-9a-f]+$")
  set(commit ${archived})
endif()

# git in this tree, whoever it belongs to, and whatever a hook that builds has in its environment; nothing is written.
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
  # The sources of the program, including untracked files, which are compiled, too.
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
