# Language levels, warnings, sanitizers: one place for all targets.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
include(GNUInstallDirs)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

add_library(cfabric_settings INTERFACE)
target_compile_definitions(cfabric_settings INTERFACE _GNU_SOURCE
  $<$<CONFIG:Debug>:CFABRIC_DEBUG=1>)
target_compile_options(cfabric_settings INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wno-override-init
    -Wno-unknown-warning-option -Wno-initializer-overrides>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-deprecated-declarations -Wno-unused-parameter>
  -fno-omit-frame-pointer)
if(CFABRIC_SANITIZE)
  target_compile_options(cfabric_settings INTERFACE -fsanitize=${CFABRIC_SANITIZE} -fno-sanitize-recover=undefined)
  target_link_options(cfabric_settings INTERFACE -fsanitize=${CFABRIC_SANITIZE})
endif()
