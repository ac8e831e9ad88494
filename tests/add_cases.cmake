# Read by ctest: asks each test program for its cases and adds one test for each.

# lgh_add_cases(PROGRAM DEVICE LABELS TIMEOUT SERIAL): DEVICE is cpu, cuda or none, SERIAL a boolean.
function(lgh_add_cases program device labels timeout serial)
    set(folder ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
    set(prefix ${program}.)
    set(arguments)
    if(NOT device STREQUAL "none")
        set(prefix ${device}.${program}.)
        set(arguments --device ${device})
    endif()

    execute_process(COMMAND ${folder}/${program} --list OUTPUT_VARIABLE names
                    RESULT_VARIABLE result ERROR_QUIET)
    string(REGEX MATCHALL "[^\n]+" names "${names}")
    if(NOT result EQUAL 0 OR NOT names)
        set(names --list) # a test that shows why there is no list, and fails
        set(arguments)
    endif()
    foreach(name IN LISTS names)
        add_test(${prefix}${name} ${folder}/${program} ${arguments} ${name})
        set_tests_properties(${prefix}${name} PROPERTIES
            LABELS "${labels}" TIMEOUT ${timeout} RUN_SERIAL ${serial} SKIP_RETURN_CODE 77
            ENVIRONMENT LGH_CACHE_DIR=${folder}/cache)
    endforeach()
endfunction()

# lgh_add_program(PROGRAM LABELS TIMEOUT): a program that is one test.
function(lgh_add_program program labels timeout)
    add_test(${program} ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${program})
    set_tests_properties(${program} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout})
endfunction()
