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
set(packages "runtime:trainhost" "plugins:trainhost-plugins" "sdk:trainhost-sdk-dev")
if(TARGET mpi)  # of its own, so that the others do not need MPI
  list(APPEND CPACK_COMPONENTS_ALL mpi)
  list(APPEND packages "mpi:trainhost-mpi")
  set(CPACK_DEBIAN_MPI_PACKAGE_NAME trainhost-mpi)
  set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "trainhost-plugins (= ${PROJECT_VERSION})")
  set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS "openmpi-bin | mpich")
  set(CPACK_DEBIAN_PLUGINS_PACKAGE_SUGGESTS "trainhost-mpi (= ${PROJECT_VERSION})")
  set(CPACK_COMPONENT_MPI_DESCRIPTION "runs of trainhost in several processes\nThe plugin that connects them with MPI.")
endif()
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "trainhost-plugins (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_PLUGINS_PACKAGE_DEPENDS "trainhost (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_SDK_PACKAGE_SUGGESTS "trainhost (= ${PROJECT_VERSION}), cmake, pkgconf, cargo")
string(CONCAT CPACK_COMPONENT_RUNTIME_DESCRIPTION "planner and trainer for language models\n"
  "trainhost predicts the memory of a training run to the byte, trains it, and\n"
  "compares the prediction with the measurement.")
set(CPACK_COMPONENT_PLUGINS_DESCRIPTION
  "trainers and estimators of trainhost\nThe trainers on CPU and CUDA and the estimators that come with trainhost.")
string(CONCAT CPACK_COMPONENT_SDK_DESCRIPTION "development files for plugins of trainhost\n"
  "C headers, a C++ layer, a Rust crate, a CMake package and a pkg-config file\n"
  "for estimators and trainers that trainhost loads.")

# What every Debian package has: its licence, what changed, and the reasons why some rules of lintian do not hold.
set(doc ${PROJECT_BINARY_DIR}/package-doc)
string(TIMESTAMP TRAINHOST_YEAR "%Y" UTC)
configure_file(${PROJECT_SOURCE_DIR}/tools/cmake/copyright.in ${doc}/copyright @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/tools/cmake/changelog.in ${doc}/changelog @ONLY)
find_program(TRAINHOST_GZIP gzip)
if(TRAINHOST_GZIP)
  execute_process(COMMAND ${TRAINHOST_GZIP} -9nkf ${doc}/changelog COMMAND_ERROR_IS_FATAL ANY)
  foreach(pair ${packages})
    string(REPLACE ":" ";" pair ${pair})
    list(GET pair 0 component)
    list(GET pair 1 package)
    install(FILES ${doc}/copyright ${doc}/changelog.gz DESTINATION share/doc/${package} COMPONENT ${component})
    set(rules "# No address of the project exists.\n${package}: bogus-mail-host *\n"
      "${package}: bogus-mail-host-in-debian-changelog *\n")
    if(component STREQUAL plugins)
      string(APPEND rules "# cuBLAS of the CUDA toolkit, which belongs to no package of Debian.\n"
        "${package}: custom-library-search-path RUNPATH /usr/local/cuda* *\n")
    elseif(component STREQUAL sdk)
      string(APPEND rules "# A plugin is a library: these options are needed to build one.\n"
        "${package}: pkg-config-bad-directive *\n")
    endif()
    file(WRITE ${doc}/${package} ${rules})
    install(FILES ${doc}/${package} DESTINATION share/lintian/overrides COMPONENT ${component})
  endforeach()
endif()
include(CPack)
