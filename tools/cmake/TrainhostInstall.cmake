# Where installed files go, and the three components that packages are made of: runtime (the program), plugins, sdk.
# Plugins are installed to lib/trainhost of the prefix even where libraries have a folder per architecture: they are
# private, and the program finds them relative to its own file (core/plugin/search_path.cpp). Packages:
# TrainhostPackage.cmake.
include(GNUInstallDirs)
set(TRAINHOST_INSTALL_PLUGINS lib/trainhost/plugins)
set(TRAINHOST_INSTALL_ENGINES lib/trainhost/engines)
set(TRAINHOST_INSTALL_SDK ${CMAKE_INSTALL_DATADIR}/trainhost/sdk)

# `tools/dev run` builds the program alone, and `cmake --install` builds nothing: what is missing of the targets named by
# trainhost_installed() is built first, tests never. The rule is the first one of the project; the script that it
# includes is written when all targets are known (trainhost_build_before_install()).
install(CODE "include(\"${PROJECT_BINARY_DIR}/build_before_install.cmake\")" ALL_COMPONENTS)
# `FILE file`: of a custom target, which does not know the file that it makes.
function(trainhost_installed)
  cmake_parse_arguments(A "" "FILE" "" ${ARGN})
  foreach(target IN LISTS A_UNPARSED_ARGUMENTS)
    set(file $<TARGET_FILE:${target}>)
    if(A_FILE)
      set(file ${A_FILE})
    endif()
    set_property(GLOBAL APPEND PROPERTY TRAINHOST_INSTALLED ${target})
    set_property(GLOBAL APPEND PROPERTY TRAINHOST_INSTALLED_FILES ${file})
  endforeach()
endfunction()
function(trainhost_build_before_install)
  get_property(targets GLOBAL PROPERTY TRAINHOST_INSTALLED)
  get_property(target_files GLOBAL PROPERTY TRAINHOST_INSTALLED_FILES)
  add_custom_target(installed DEPENDS sdk_docs ${targets})
  set(files "\"${PROJECT_BINARY_DIR}/sdk_docs/checks\"")
  foreach(file IN LISTS target_files)
    string(APPEND files " \"${file}\"")
  endforeach()
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/build_before_install.cmake CONTENT
"foreach(file ${files})
  if(NOT EXISTS \"\${file}\")
    message(STATUS \"Building what is installed besides the program\")
    execute_process(COMMAND \"${CMAKE_COMMAND}\" --build \"${PROJECT_BINARY_DIR}\" --target installed
      COMMAND_ERROR_IS_FATAL ANY)
    break()
  endif()
endforeach()
")
endfunction()

# trainhost_install_plugin(target dir component): installs a target that is built into the plugin or engine folder; test
# plugins are not installed.
function(trainhost_install_plugin target dir component)
  if(dir STREQUAL TRAINHOST_PLUGIN_DIR)
    install(TARGETS ${target} LIBRARY DESTINATION ${TRAINHOST_INSTALL_PLUGINS} COMPONENT ${component})
    trainhost_installed(${target})
  elseif(dir STREQUAL TRAINHOST_ENGINE_DIR)
    install(TARGETS ${target} LIBRARY DESTINATION ${TRAINHOST_INSTALL_ENGINES} COMPONENT ${component})
    trainhost_installed(${target})
  endif()
endfunction()

# trainhost_abi(out_major out_minor): the ABI version, from sdk/include/trainhost/status.h.
function(trainhost_abi out_major out_minor)
  file(STRINGS ${PROJECT_SOURCE_DIR}/sdk/include/trainhost/status.h lines REGEX "^#define TH_ABI_(MAJOR|MINOR) ")
  string(REGEX REPLACE ".*TH_ABI_MAJOR ([0-9]+)u.*" "\\1" major "${lines}")
  string(REGEX REPLACE ".*TH_ABI_MINOR ([0-9]+)u.*" "\\1" minor "${lines}")
  set(${out_major} ${major} PARENT_SCOPE)
  set(${out_minor} ${minor} PARENT_SCOPE)
endfunction()
