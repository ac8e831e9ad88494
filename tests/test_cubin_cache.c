/* test_cubin_cache.c - compiled kernels on disk: what is found again, what is a miss, and what
 * happens when the folder is no good. Needs NVRTC, but no GPU. */
#include "cubin.h"
#include "harness.h"

#include <dirent.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFINITIONS "#define LGH_THREADS 128\n"

static const lgh__compilation small_kernel = {"compare_rows.cu", DEFINITIONS, "sm_90a"};

/* ---- A folder of the case's own ---------------------------------------------------------------
 */

static char folder[PATH_MAX / 2];

static int create_folder(void **state) {
    (void)state;
    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/lgh-cache-XXXXXX", parent && *parent ? parent : "/tmp");
    return mkdtemp(folder) && setenv("LGH_CACHE_DIR", folder, 1) == 0 ? 0 : -1;
}

static int remove_path(const char *path, const struct stat *info, int kind, struct FTW *place) {
    (void)info, (void)kind, (void)place;
    return remove(path);
}

static int remove_folder(void **state) {
    (void)state;
    return nftw(folder, remove_path, 16, FTW_DEPTH | FTW_PHYS);
}

/* Writes the path of the index-th entry of <folder>/cubin and returns how many there are. */
static int find_entry(int index, char *path) {
    char root[PATH_MAX];
    int count = 0;
    snprintf(root, sizeof root, "%s/cubin", folder);
    DIR *stream = opendir(root);
    if (!stream)
        return 0;
    for (struct dirent *d = readdir(stream); d; d = readdir(stream)) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        if (count++ == index && path)
            snprintf(path, PATH_MAX, "%s/cubin/%s", folder, d->d_name);
    }
    closedir(stream);
    return count;
}

static void path_in_entry(char *path, const char *file) {
    char entry[PATH_MAX];
    assert_int_equal(find_entry(0, entry), 1);
    assert_true(snprintf(path, PATH_MAX, "%s/%s", entry, file) < PATH_MAX);
}

/* ---- Getting kernels --------------------------------------------------------------------------
 */

static void require_nvrtc(void) {
    char identity[64];
    if (lgh__nvrtc_identity(identity, sizeof identity) != LGH_SUCCESS)
        lgh_test_skip("%s", lgh_last_error());
}

/* Whether the kernel came from the cache. */
static int get_is_warm(const lgh__compilation *what, const char **note) {
    lgh__compiled compiled;
    lgh_assert_success(lgh__cubin_get(&compiled, what, note));
    assert_true(compiled.cubin_bytes > 4);
    lgh_assert_same_bytes(compiled.cubin, "\177ELF", 4, "the cubin's first bytes");
    const int warm = compiled.log == NULL;
    free(compiled.cubin);
    free(compiled.log);
    return warm;
}

static void assert_cold(const lgh__compilation *what) {
    const char *note;
    assert_false(get_is_warm(what, &note));
    assert_null(note);
}

static void assert_warm(const lgh__compilation *what) {
    const char *note;
    assert_true(get_is_warm(what, &note));
    assert_null(note);
}

/* ---- Hits -------------------------------------------------------------------------------------
 */

static void second_request_gives_the_stored_bytes(void **state) {
    (void)state;
    lgh__compiled cold, warm;
    const char *note;
    require_nvrtc();
    lgh_assert_success(lgh__cubin_get(&cold, &small_kernel, &note));
    lgh_assert_success(lgh__cubin_get(&warm, &small_kernel, &note));
    assert_non_null(cold.log);
    assert_null(warm.log);
    assert_int_equal(warm.cubin_bytes, cold.cubin_bytes);
    lgh_assert_same_bytes(warm.cubin, cold.cubin, cold.cubin_bytes, "the cubin");
    free(cold.cubin);
    free(cold.log);
    free(warm.cubin);
}

static void entry_is_readable(void **state) {
    (void)state;
    static const char *const files[] = {"kernel.cubin", "definitions.h", "key.txt", "log.txt"};
    char path[PATH_MAX], text[4096] = "";
    require_nvrtc();
    assert_cold(&small_kernel);
    for (size_t i = 0; i < sizeof files / sizeof *files; ++i) {
        path_in_entry(path, files[i]);
        assert_int_equal(access(path, R_OK), 0);
    }
    path_in_entry(path, "key.txt");
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    lgh_assert_contains(text, "compare_rows.cu");
    lgh_assert_contains(text, "sm_90a");
}

/* ---- Misses -----------------------------------------------------------------------------------
 */

static void every_ingredient_makes_another_entry(void **state) {
    (void)state;
    static const lgh__compilation others[] = {
        {"compare_rows.cu", "#define LGH_THREADS 64\n", "sm_90a"},
        {"compare_rows.cu", DEFINITIONS, "sm_80"},
        {"gradient_scale.cu", DEFINITIONS, "sm_90a"},
    };
    require_nvrtc();
    assert_cold(&small_kernel);
    for (int i = 0; i < 3; ++i) {
        assert_cold(&others[i]);
        assert_int_equal(find_entry(0, NULL), i + 2);
    }
    assert_warm(&small_kernel);
    for (int i = 0; i < 3; ++i)
        assert_warm(&others[i]);
}

static void overwrite(const char *path, const char *text, size_t bytes) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void flip_byte(const char *path, long offset) {
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    const int byte = fgetc(file);
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    assert_true(fputc(byte ^ 1, file) != EOF);
    assert_int_equal(fclose(file), 0);
}

static void truncate_to(const char *path, off_t bytes) {
    assert_int_equal(truncate(path, bytes), 0);
}

static void damage(int kind) {
    char path[PATH_MAX];
    path_in_entry(path, kind < 5 ? "kernel.cubin" : kind < 8 ? "key.txt" : "definitions.h");
    if (kind == 0)
        flip_byte(path, 3000);
    else if (kind == 1)
        truncate_to(path, 1000);
    else if (kind == 2)
        truncate_to(path, 0);
    else if (kind == 3 || kind == 5 || kind == 8)
        assert_int_equal(remove(path), 0);
    else if (kind == 4)
        assert_true(remove(path) == 0 && mkdir(path, 0777) == 0);
    else if (kind == 6)
        truncate_to(path, 10);
    else if (kind == 7)
        overwrite(path, "\0\n", 2);
    else
        overwrite(path, "#define LGH_THREADS 64\n", 23);
}

static void damaged_entry_is_replaced(void **state) {
    (void)state;
    enum { KINDS = 10 };
    require_nvrtc();
    for (int kind = 0; kind < KINDS; ++kind) {
        const char *note;
        get_is_warm(&small_kernel, &note);
        damage(kind);
        print_message("damage %d\n", kind);
        assert_cold(&small_kernel);
        assert_warm(&small_kernel);
        remove_folder(NULL);
    }
    assert_int_equal(mkdir(folder, 0777), 0);
}

static void file_in_place_of_an_entry_is_replaced(void **state) {
    (void)state;
    char entry[PATH_MAX];
    require_nvrtc();
    assert_cold(&small_kernel);
    assert_int_equal(find_entry(0, entry), 1);
    assert_int_equal(nftw(entry, remove_path, 16, FTW_DEPTH | FTW_PHYS), 0);
    overwrite(entry, "x", 1);
    assert_cold(&small_kernel);
    assert_warm(&small_kernel);
}

/* An intact entry of another kernel, under this kernel's name. */
static void foreign_entry_is_replaced(void **state) {
    (void)state;
    static const lgh__compilation other = {"compare_rows.cu", "#define LGH_THREADS 64\n", "sm_90a"};
    char entry[PATH_MAX], other_entry[PATH_MAX], aside[PATH_MAX];
    require_nvrtc();
    assert_cold(&small_kernel);
    assert_int_equal(find_entry(0, entry), 1);
    assert_true(snprintf(aside, sizeof aside, "%s/aside", folder) < PATH_MAX);
    assert_int_equal(rename(entry, aside), 0);
    assert_cold(&other);
    assert_int_equal(find_entry(0, other_entry), 1);
    assert_int_equal(rename(other_entry, entry), 0);
    assert_cold(&small_kernel);
    assert_warm(&small_kernel);
}

/* ---- Folders ----------------------------------------------------------------------------------
 */

static void assert_compiles_with_a_note(void) {
    const char *note;
    for (int i = 0; i < 2; ++i) {
        assert_false(get_is_warm(&small_kernel, &note));
        assert_non_null(note);
        lgh_assert_contains(note, "LGH_CACHE_DIR");
    }
}

/* Below a file no folder can be made, whoever asks: permissions would not stop root. */
static void unusable_folder_only_costs_speed(void **state) {
    (void)state;
    char file[PATH_MAX], below[PATH_MAX];
    require_nvrtc();
    assert_true(snprintf(file, sizeof file, "%s/file", folder) < PATH_MAX);
    overwrite(file, "x", 1);
    assert_true(snprintf(below, sizeof below, "%s/deep/down", file) < PATH_MAX);
    setenv("LGH_CACHE_DIR", below, 1);
    assert_compiles_with_a_note();
    setenv("LGH_CACHE_DIR", file, 1);
    assert_compiles_with_a_note();
}

static void read_only_folder_only_costs_speed(void **state) {
    (void)state;
    if (geteuid() == 0)
        lgh_test_skip("permissions do not bind root");
    require_nvrtc();
    assert_int_equal(chmod(folder, 0555), 0);
    assert_compiles_with_a_note();
    assert_int_equal(chmod(folder, 0755), 0);
}

static void without_any_folder_kernels_are_compiled(void **state) {
    (void)state;
    require_nvrtc();
    unsetenv("LGH_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_compiles_with_a_note();
}

static void other_variables_name_the_folder(void **state) {
    (void)state;
    char path[PATH_MAX];
    require_nvrtc();
    unsetenv("LGH_CACHE_DIR");
    setenv("XDG_CACHE_HOME", folder, 1);
    assert_cold(&small_kernel);
    assert_warm(&small_kernel);
    assert_true(snprintf(path, sizeof path, "%s/loggerhead/cubin", folder) < PATH_MAX);
    assert_int_equal(access(path, X_OK), 0);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", folder, 1);
    assert_cold(&small_kernel);
    assert_true(snprintf(path, sizeof path, "%s/.cache/loggerhead/cubin", folder) < PATH_MAX);
    assert_int_equal(access(path, X_OK), 0);
}

/* ---- Processes --------------------------------------------------------------------------------
 */

/* The child's exit status: 0 where it got the kernel, 2 without NVRTC. */
static int get_in_child(void) {
    lgh__compiled compiled;
    const char *note;
    char identity[64];
    if (lgh__nvrtc_identity(identity, sizeof identity) != LGH_SUCCESS)
        return 2;
    return lgh__cubin_get(&compiled, &small_kernel, &note) == LGH_SUCCESS ? 0 : 1;
}

static pid_t start_child(void) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(get_in_child());
    return child;
}

static void join_child(pid_t child) {
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2)
        lgh_test_skip("NVRTC was not found");
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void processes_may_start_cold_at_once(void **state) {
    (void)state;
    enum { CHILDREN = 6 };
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; ++i)
        children[i] = start_child();
    for (int i = 0; i < CHILDREN; ++i)
        join_child(children[i]);
    assert_int_equal(find_entry(0, NULL), 1); /* and nothing half-written beside it */
    assert_warm(&small_kernel);
}

/* Must run in a process that has not loaded NVRTC yet. */
static void without_nvrtc_an_entry_of_any_version_is_taken(void **state) {
    (void)state;
    char entry[PATH_MAX], renamed[PATH_MAX], identity[64];
    lgh__compiled compiled;
    const char *note;
    join_child(start_child());
    setenv("LGH_NVRTC_PATH", "/nowhere/libnvrtc.so", 1);
    if (lgh__nvrtc_identity(identity, sizeof identity) == LGH_SUCCESS)
        lgh_test_skip("another case of this process has loaded NVRTC");
    assert_int_equal(find_entry(0, entry), 1);
    char *version = strstr(entry, ".nvrtc-");
    assert_non_null(version);
    assert_true(snprintf(renamed, sizeof renamed, "%.*s.nvrtc-99.9-1", (int)(version - entry),
                         entry) < PATH_MAX);
    assert_int_equal(rename(entry, renamed), 0);
    assert_warm(&small_kernel);
    remove_folder(NULL);
    assert_int_equal(mkdir(folder, 0777), 0);
    lgh_assert_status(lgh__cubin_get(&compiled, &small_kernel, &note), LGH_ERROR_LIBRARY_NOT_FOUND);
    lgh_assert_contains(lgh_last_error(), "/nowhere/libnvrtc.so");
    lgh_assert_contains(lgh_last_error(), "LGH_NVRTC_PATH");
    unsetenv("LGH_NVRTC_PATH");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, create_folder, remove_folder)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        CASE(without_nvrtc_an_entry_of_any_version_is_taken),
        CASE(second_request_gives_the_stored_bytes),
        CASE(entry_is_readable),
        CASE(every_ingredient_makes_another_entry),
        CASE(damaged_entry_is_replaced),
        CASE(file_in_place_of_an_entry_is_replaced),
        CASE(foreign_entry_is_replaced),
        CASE(unusable_folder_only_costs_speed),
        CASE(read_only_folder_only_costs_speed),
        CASE(without_any_folder_kernels_are_compiled),
        CASE(other_variables_name_the_folder),
        CASE(processes_may_start_cold_at_once),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
