# What Loggerhead builds with and does not contain. tools/bootstrap.sh installs all of it but the
# CUDA headers.
#
# Sets LGH_WITH_CUDA and defines
#     loggerhead_cuda_headers   CUDA's headers and xxHash, where LGH_WITH_CUDA
#     loggerhead_cmocka         cmocka, where LGH_TESTS

find_package(Threads REQUIRED)

# Stops with the name of what is missing and what to do about it.
function(lgh_require variable what)
    if(NOT ${variable})
        message(FATAL_ERROR "${what} not found: run tools/bootstrap.sh, or set ${variable}")
    endif()
endfunction()

# Copies a shared library into a folder of the build, under the name that the loader asks for, and
# sets `carried` to the copy, which is what to link.
function(lgh_carry_library carried library folder)
    file(REAL_PATH ${library} file)
    if(NOT file MATCHES "\\.so")
        set(${carried} ${library} PARENT_SCOPE) # an archive needs no carrying
        return()
    endif()
    execute_process(COMMAND ${CMAKE_READELF} -d ${file} OUTPUT_VARIABLE dynamic
                    COMMAND_ERROR_IS_FATAL ANY)
    if(NOT dynamic MATCHES "SONAME[^[]*\\[([^]]+)\\]")
        message(FATAL_ERROR "${file} has no SONAME")
    endif()
    file(MAKE_DIRECTORY ${folder})
    file(COPY_FILE ${file} ${folder}/${CMAKE_MATCH_1} ONLY_IF_DIFFERENT)
    set(${carried} ${folder}/${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

# ---- CUDA: headers alone, the libraries are opened at run time -----------------------------------

set(LGH_WITH_CUDA FALSE)
if(NOT LGH_CUDA STREQUAL "OFF")
    # NVIDIA's Python wheels keep the headers of each library in a folder of its own.
    if(DEFINED ENV{VIRTUAL_ENV})
        file(GLOB wheel_folders $ENV{VIRTUAL_ENV}/lib/python3*/site-packages/nvidia/*/include)
    endif()
    set(cuda_folders
        $ENV{CUDA_HOME}/include
        $ENV{CUDA_PATH}/include
        /usr/local/cuda/include
        ${wheel_folders})
    find_path(LGH_CUDA_INCLUDE_DIR cuda.h HINTS ${cuda_folders})
    find_path(LGH_NVRTC_INCLUDE_DIR nvrtc.h HINTS ${cuda_folders})
    find_path(LGH_CUBLASLT_INCLUDE_DIR cublasLt.h HINTS ${cuda_folders})
    if(LGH_CUDA_INCLUDE_DIR AND LGH_NVRTC_INCLUDE_DIR AND LGH_CUBLASLT_INCLUDE_DIR)
        set(LGH_WITH_CUDA TRUE)
    endif()
endif()

if(LGH_WITH_CUDA)
    find_path(LGH_XXHASH_INCLUDE_DIR xxhash.h)
    lgh_require(LGH_XXHASH_INCLUDE_DIR "xxhash.h")
    add_library(loggerhead_cuda_headers INTERFACE)
    target_include_directories(loggerhead_cuda_headers SYSTEM INTERFACE
        ${LGH_CUDA_INCLUDE_DIR} ${LGH_NVRTC_INCLUDE_DIR} ${LGH_CUBLASLT_INCLUDE_DIR}
        ${LGH_XXHASH_INCLUDE_DIR})
    message(STATUS "CUDA headers: ${LGH_CUDA_INCLUDE_DIR}")
elseif(LGH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "cuda.h, nvrtc.h and cublasLt.h not found: set CUDA_HOME, or LGH_CUDA=AUTO")
elseif(LGH_CUDA STREQUAL "OFF")
    message(STATUS "LGH_CUDA=OFF: building the CPU device only")
else()
    message(STATUS "CUDA headers not found: building the CPU device only")
endif()

# ---- cmocka, for the tests -----------------------------------------------------------------------

if(LGH_TESTS)
    find_path(LGH_CMOCKA_INCLUDE_DIR cmocka.h)
    find_library(LGH_CMOCKA_LIBRARY cmocka)
    lgh_require(LGH_CMOCKA_INCLUDE_DIR "cmocka.h")
    lgh_require(LGH_CMOCKA_LIBRARY "libcmocka")
    add_library(loggerhead_cmocka INTERFACE)
    target_include_directories(loggerhead_cmocka SYSTEM INTERFACE ${LGH_CMOCKA_INCLUDE_DIR})
    lgh_carry_library(carried_cmocka ${LGH_CMOCKA_LIBRARY} ${PROJECT_BINARY_DIR}/tests)
    target_link_libraries(loggerhead_cmocka INTERFACE ${carried_cmocka})
endif()
