# trainhost_add_plugin(NAME SOURCES file... [LINK library...]): the target NAME, a plugin file NAME.so for trainhost.
#   - one exported symbol: hidden visibility, the SDK's version script, no GNU-unique symbols that would pin the library
#   - every symbol resolved when it is linked (-z defs), and bound when it is loaded
# It never touches CMAKE_*_FLAGS. -ffast-math is an error here: linking with it changes the floating-point mode of the whole
# host when the library is loaded, which the host undoes and `trainhost plugins check` refuses.
function(trainhost_add_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "" "SOURCES;LINK")
  if(A_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "trainhost_add_plugin(${name}): unknown words '${A_UNPARSED_ARGUMENTS}'; it takes SOURCES and LINK")
  endif()
  if(NOT A_SOURCES)
    message(FATAL_ERROR "trainhost_add_plugin(${name}): SOURCES is missing")
  endif()
  if("${CMAKE_C_FLAGS} ${CMAKE_CXX_FLAGS} ${CMAKE_MODULE_LINKER_FLAGS}" MATCHES "-ffast-math|-Ofast")
    message(FATAL_ERROR "trainhost_add_plugin(${name}): -ffast-math and -Ofast change the floating-point mode of the host "
      "when the plugin is loaded; take -O3 -fno-math-errno -fno-trapping-math for the files that need it")
  endif()
  add_library(${name} MODULE ${A_SOURCES})
  target_link_libraries(${name} PRIVATE trainhost::sdk ${A_LINK})
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX .so C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON LINK_DEPENDS ${trainhost-sdk_VERSION_SCRIPT})
  if(CMAKE_C_COMPILER_LOADED)
    target_compile_features(${name} PRIVATE c_std_11)
  endif()
  if(CMAKE_CXX_COMPILER_LOADED)
    target_compile_features(${name} PRIVATE cxx_std_17)
  endif()
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
  target_link_options(${name} PRIVATE -Wl,--version-script=${trainhost-sdk_VERSION_SCRIPT} -Wl,-z,now -Wl,-z,relro -Wl,-z,noexecstack)
  if(NOT "${CMAKE_C_FLAGS} ${CMAKE_CXX_FLAGS}" MATCHES "-fsanitize")
    target_link_options(${name} PRIVATE -Wl,-z,defs)
  endif()
endfunction()
