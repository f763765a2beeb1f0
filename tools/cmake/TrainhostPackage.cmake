# Debian packages of what is installed: trainhost (the program), trainhost-plugins, trainhost-sdk-dev. `tools/dev deb`
# builds them; dependencies on libraries are found by dpkg-shlibdeps. Tested by tests/sdk/installed/deb_test.sh.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME trainhost)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The trainhost authors <trainhost@localhost>")
set(CPACK_PACKAGE_HOMEPAGE_URL "")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime plugins sdk)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
  WORLD_EXECUTE)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Libraries of CUDA belong to no Debian package.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "")
if(TRAINHOST_CUDA_FOUND)
  list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${TRAINHOST_CUBLAS_DIR})
endif()
if(TRAINHOST_CUDA12_TOOLKIT)
  list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${TRAINHOST_CUDA12_TOOLKIT}/lib64)
endif()
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME trainhost)
set(CPACK_DEBIAN_PLUGINS_PACKAGE_NAME trainhost-plugins)
set(CPACK_DEBIAN_SDK_PACKAGE_NAME trainhost-sdk-dev)
set(CPACK_DEBIAN_SDK_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "trainhost-plugins (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_PLUGINS_PACKAGE_DEPENDS "trainhost (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_SDK_PACKAGE_SUGGESTS "trainhost (= ${PROJECT_VERSION}), cmake, pkgconf, cargo")
string(CONCAT CPACK_COMPONENT_RUNTIME_DESCRIPTION "planner and trainer for language models\n"
  " trainhost predicts the memory of a training run to the byte, trains it, and\n"
  " compares the prediction with the measurement.")
set(CPACK_COMPONENT_PLUGINS_DESCRIPTION
  "trainers and estimators of trainhost\n The trainers on CPU and CUDA and the estimators that come with trainhost.")
string(CONCAT CPACK_COMPONENT_SDK_DESCRIPTION "development files for plugins of trainhost\n"
  " C headers, a C++ layer, a Rust crate, a CMake package and a pkg-config file for\n"
  " estimators and trainers that trainhost loads.")

# What every Debian package has: its licence and what changed.
set(doc ${PROJECT_BINARY_DIR}/package-doc)
string(TIMESTAMP TRAINHOST_YEAR "%Y" UTC)
configure_file(${PROJECT_SOURCE_DIR}/tools/cmake/copyright.in ${doc}/copyright @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/tools/cmake/changelog.in ${doc}/changelog @ONLY)
find_program(TRAINHOST_GZIP gzip)
if(TRAINHOST_GZIP)
  execute_process(COMMAND ${TRAINHOST_GZIP} -9nkf ${doc}/changelog COMMAND_ERROR_IS_FATAL ANY)
  foreach(pair "runtime:trainhost" "plugins:trainhost-plugins" "sdk:trainhost-sdk-dev")
    string(REPLACE ":" ";" pair ${pair})
    list(GET pair 0 component)
    list(GET pair 1 package)
    install(FILES ${doc}/copyright ${doc}/changelog.gz DESTINATION share/doc/${package} COMPONENT ${component})
  endforeach()
endif()
include(CPack)
