/* cubin.c - compiled kernels on disk.
 *
 * An entry is a readable directory
 *
 *     <cache>/cubin/<source>.<arch>.<hash>.nvrtc-<identity>/
 *         kernel.cubin      the code
 *         definitions.h     what it was specialised with
 *         key.txt           every ingredient of the hash, and the code's checksum
 *         log.txt           the compiler's log
 *
 * written aside and renamed as a whole, so that any number of processes may start cold at once. The
 * compiler stands in the name rather than in the hash: a machine without NVRTC may take any.
 */
#include "cubin.h"

#include "env.h"
#include "error.h"
#include "sources.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Part of the hash: raise it when an entry's files change their meaning. */
#define CUBIN_FORMAT 1

typedef struct entry {
    char root[PATH_MAX]; /* <cache>/cubin */
    char prefix[160];    /* the directory's name up to and with ".nvrtc-" */
    char identity[64];   /* of the compiler; empty without NVRTC */
    char options[512];
    uint64_t hash;
} entry;

static uint64_t hash_sources(XXH64_state_t *state) {
    for (size_t i = 0; i < lgh__source_count; ++i) {
        XXH64_update(state, lgh__sources[i].name, strlen(lgh__sources[i].name) + 1);
        XXH64_update(state, lgh__sources[i].text, lgh__sources[i].length);
    }
    return XXH64_digest(state);
}

/* Hashes the whole embedded source set, since any kernel may include any of it. */
static uint64_t hash_ingredients(const entry *e, const lgh__compilation *what) {
    XXH64_state_t state;
    const int version[2] = {CUBIN_FORMAT, lgh_version()};
    XXH64_reset(&state, 0);
    XXH64_update(&state, version, sizeof version);
    XXH64_update(&state, what->source_name, strlen(what->source_name) + 1);
    XXH64_update(&state, what->definitions, strlen(what->definitions) + 1);
    XXH64_update(&state, e->options, strlen(e->options) + 1);
    return hash_sources(&state);
}

/* False where there is no cache folder to speak of. */
static int name_entry(entry *e, const lgh__compilation *what) {
    char cache[PATH_MAX - 16];
    lgh__nvrtc_options(e->options, sizeof e->options, what->arch);
    e->hash = hash_ingredients(e, what);
    snprintf(e->prefix, sizeof e->prefix, "%s.%s.%016llx.nvrtc-", what->source_name, what->arch,
             (unsigned long long)e->hash);
    if (!lgh__env_cache_directory(cache, sizeof cache))
        return 0;
    snprintf(e->root, sizeof e->root, "%s/cubin", cache);
    return 1;
}

static int join(char *path, const char *folder, const char *name, const char *suffix) {
    int length = snprintf(path, PATH_MAX, "%s/%s%s", folder, name, suffix);
    return length > 0 && length < PATH_MAX;
}

/* Reads a whole file, with a zero byte after it; NULL on any failure. */
static char *read_file(const char *folder, const char *name, size_t *bytes) {
    char path[PATH_MAX];
    struct stat info;
    FILE *file = join(path, folder, name, "") ? fopen(path, "rb") : NULL;
    if (!file)
        return NULL;
    char *data = NULL;
    if (fstat(fileno(file), &info) == 0 && S_ISREG(info.st_mode))
        data = malloc((size_t)info.st_size + 1);
    if (data && fread(data, 1, (size_t)info.st_size, file) != (size_t)info.st_size) {
        free(data);
        data = NULL;
    }
    fclose(file);
    if (data) {
        *bytes = (size_t)info.st_size;
        data[*bytes] = 0;
    }
    return data;
}

static void format_key(char *text, size_t capacity, const entry *e, const lgh__compilation *what,
                       const char *cubin, size_t bytes) {
    snprintf(text, capacity,
             "format = %d\nlibrary = %d\nsource = %s\narch = %s\nhash = %016llx\n"
             "checksum = %016llx\nbytes = %zu\noptions:\n%s",
             CUBIN_FORMAT, lgh_version(), what->source_name, what->arch,
             (unsigned long long)e->hash, (unsigned long long)XXH64(cubin, bytes, 0), bytes,
             e->options);
}

/* True if the entry's key is the one that its own cubin and this compilation give. */
static int key_matches(const char *folder, const entry *e, const lgh__compilation *what,
                       const char *cubin, size_t bytes) {
    char expected[1024];
    size_t key_bytes, definitions_bytes;
    char *key = read_file(folder, "key.txt", &key_bytes);
    char *definitions = read_file(folder, "definitions.h", &definitions_bytes);
    format_key(expected, sizeof expected, e, what, cubin, bytes);
    int matches = key && definitions && strcmp(key, expected) == 0 &&
                  strcmp(definitions, what->definitions) == 0;
    free(key);
    free(definitions);
    return matches;
}

static int load_from(lgh__compiled *out, const char *folder, const entry *e,
                     const lgh__compilation *what) {
    size_t bytes = 0;
    char *cubin = read_file(folder, "kernel.cubin", &bytes);
    if (cubin && key_matches(folder, e, what, cubin, bytes)) {
        *out = (lgh__compiled){cubin, bytes, NULL};
        return 1;
    }
    free(cubin);
    return 0;
}

static int load_exact(lgh__compiled *out, const entry *e, const lgh__compilation *what) {
    char name[256], folder[PATH_MAX];
    snprintf(name, sizeof name, "%s%s", e->prefix, e->identity);
    return join(folder, e->root, name, "") && load_from(out, folder, e, what);
}

static int load_any_compiler(lgh__compiled *out, const entry *e, const lgh__compilation *what) {
    char folder[PATH_MAX];
    int loaded = 0;
    DIR *root = opendir(e->root);
    if (!root)
        return 0;
    for (struct dirent *d = readdir(root); d && !loaded; d = readdir(root))
        if (strncmp(d->d_name, e->prefix, strlen(e->prefix)) == 0 &&
            join(folder, e->root, d->d_name, ""))
            loaded = load_from(out, folder, e, what);
    closedir(root);
    return loaded;
}

static int write_file(const char *folder, const char *name, const char *data, size_t bytes) {
    char path[PATH_MAX];
    FILE *file = join(path, folder, name, "") ? fopen(path, "wb") : NULL;
    if (!file)
        return 0;
    int written =
        fwrite(data, 1, bytes, file) == bytes && fflush(file) == 0 && fsync(fileno(file)) == 0;
    return fclose(file) == 0 && written;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place) {
    (void)info;
    (void)kind;
    (void)place;
    remove(path);
    return 0;
}

/* Whatever it holds: an entry that is not ours is no entry, and may be a plain file. */
static void remove_entry(const char *folder) {
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* mkdir -p; a folder that is there already is fine. */
static int make_folders(const char *path) {
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return 0;
        *slash = '/';
    }
    return mkdir(part, 0777) == 0 || errno == EEXIST;
}

static int write_entry(const char *folder, const entry *e, const lgh__compilation *what,
                       const lgh__compiled *compiled) {
    char key[1024];
    format_key(key, sizeof key, e, what, compiled->cubin, compiled->cubin_bytes);
    return write_file(folder, "kernel.cubin", compiled->cubin, compiled->cubin_bytes) &&
           write_file(folder, "definitions.h", what->definitions, strlen(what->definitions)) &&
           write_file(folder, "log.txt", compiled->log, strlen(compiled->log)) &&
           write_file(folder, "key.txt", key, strlen(key));
}

/* Puts the finished folder in place. A directory cannot be renamed onto a full one: what is there
 * was not usable, so it is moved out first. Where that fails, or the place is taken again at once,
 * another process has been faster with the same content. */
static int publish(const char *finished, const char *folder) {
    char retired[PATH_MAX];
    if (rename(finished, folder) == 0)
        return 1;
    const int taken = errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR;
    int length = snprintf(retired, sizeof retired, "%s.old", finished);
    if (!taken || length >= (int)sizeof retired)
        return 0;
    if (rename(folder, retired) == 0) {
        if (rename(finished, folder) != 0)
            remove_entry(finished);
        remove_entry(retired);
    } else {
        remove_entry(finished);
    }
    return 1;
}

static int store(const entry *e, const lgh__compilation *what, const lgh__compiled *compiled) {
    char aside[PATH_MAX], folder[PATH_MAX], name[256];
    snprintf(name, sizeof name, "%s%s", e->prefix, e->identity);
    if (!make_folders(e->root) || !join(folder, e->root, name, "") ||
        !join(aside, e->root, ".new-XXXXXX", "") || !mkdtemp(aside))
        return 0;
    chmod(aside, 0755); /* mkdtemp's 0700 would hide a shared cache from other users */
    int stored = write_entry(aside, e, what, compiled) && publish(aside, folder);
    if (!stored)
        remove_entry(aside);
    return stored;
}

lgh_status lgh__cubin_get(lgh__compiled *out, const lgh__compilation *what, const char **note) {
    entry e = {.hash = 0};
    *note = NULL;
    int cached = name_entry(&e, what);
    lgh_status status = lgh__nvrtc_identity(e.identity, sizeof e.identity);
    if (status != LGH_SUCCESS)
        return cached && load_any_compiler(out, &e, what) ? LGH_SUCCESS : status;
    if (cached && load_exact(out, &e, what))
        return LGH_SUCCESS;
    FORWARD(lgh__nvrtc_compile(out, what));
    if (!cached || !store(&e, what, out))
        *note = "the kernel cache is not writable: every process compiles its kernels anew; "
                "LGH_CACHE_DIR names another folder";
    return LGH_SUCCESS;
}
