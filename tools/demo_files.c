/* demo_files.c - the text of files and folders, joined. */
#include "demo_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOKED_AT 8192 /* bytes of a file in which a zero byte means: not text */

typedef enum outcome {
    ADDED,
    NOT_TEXT,
    UNREADABLE, /* errno says why */
    OUT_OF_MEMORY
} outcome;

static outcome append_stream(lgh_tool_corpus *corpus, FILE *stream) {
    size_t room = corpus->limit - corpus->length;
    size_t before = corpus->length;
    while (room > 0) {
        size_t wanted = room < LOOKED_AT ? room : LOOKED_AT;
        unsigned char *grown = realloc(corpus->text, corpus->length + wanted);
        if (grown == NULL)
            return OUT_OF_MEMORY;
        corpus->text = grown;
        size_t got = fread(grown + corpus->length, 1, wanted, stream);
        if (got == 0)
            break;
        if (corpus->length == before && memchr(grown + before, 0, got) != NULL)
            return NOT_TEXT;
        corpus->length += got;
        room -= got;
    }
    if (ferror(stream))
        return UNREADABLE;
    corpus->is_cut |= room == 0;
    corpus->files += corpus->length > before;
    return ADDED;
}

static outcome append_file(lgh_tool_corpus *corpus, const char *path) {
    FILE *stream = fopen(path, "rb");
    if (stream == NULL)
        return UNREADABLE;
    outcome result = append_stream(corpus, stream);
    int reason = errno;
    fclose(stream);
    errno = reason;
    return result;
}

static int is_visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static int compare_names(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static outcome append_folder(lgh_tool_corpus *corpus, const char *folder);

/* A file or folder met inside a folder: only running out of memory is worth stopping for. */
static outcome append_found(lgh_tool_corpus *corpus, const char *path) {
    struct stat info;
    outcome result = ADDED;
    if (lstat(path, &info) != 0)
        return ADDED;
    if (S_ISDIR(info.st_mode))
        result = append_folder(corpus, path);
    else if (S_ISREG(info.st_mode))
        result = append_file(corpus, path);
    return result == OUT_OF_MEMORY ? OUT_OF_MEMORY : ADDED;
}

static outcome append_folder(lgh_tool_corpus *corpus, const char *folder) {
    struct dirent **entries = NULL;
    /* scandir orders by code units, so that the text is the same in every locale. */
    int count = scandir(folder, &entries, is_visible, compare_names);
    if (count < 0)
        return errno == ENOMEM ? OUT_OF_MEMORY : UNREADABLE;
    outcome result = ADDED;
    for (int i = 0; i < count; ++i) {
        char *path = NULL;
        if (result == ADDED && corpus->length < corpus->limit) {
            if (asprintf(&path, "%s/%s", folder, entries[i]->d_name) < 0)
                result = OUT_OF_MEMORY;
            else
                result = append_found(corpus, path);
            free(path);
        }
        free(entries[i]);
    }
    free(entries);
    return result;
}

int lgh_tool_corpus_add(lgh_tool_corpus *corpus, const char *path, char *problem, size_t capacity) {
    struct stat info;
    outcome result = UNREADABLE;
    if (stat(path, &info) == 0)
        result = S_ISDIR(info.st_mode) ? append_folder(corpus, path) : append_file(corpus, path);
    switch (result) {
    case ADDED:
        return 0;
    case NOT_TEXT:
        snprintf(problem, capacity, "'%s' is not text: it holds zero bytes", path);
        break;
    case UNREADABLE:
        snprintf(problem, capacity, "cannot read '%s': %s", path, strerror(errno));
        break;
    case OUT_OF_MEMORY:
        snprintf(problem, capacity, "out of memory while reading '%s'", path);
        break;
    }
    return -1;
}

/* ---- The project's own files --------------------------------------------------------------- */

#ifndef LGH_SOURCE_DIR
#define LGH_SOURCE_DIR "."
#endif

/* A folder with this file is taken to be the project. */
#define LANDMARK "include/loggerhead/loggerhead.h"

static int exists(const char *folder, const char *name, char *path, size_t capacity) {
    int length = snprintf(path, capacity, "%s/%s", folder, name);
    return length > 0 && (size_t)length < capacity && access(path, R_OK) == 0;
}

int lgh_tool_corpus_add_own(lgh_tool_corpus *corpus, char *problem, size_t capacity) {
    static const char *const names[] = {"README.md", LANDMARK, "runtime", "kernels_src"};
    char path[4096];
    const char *folder = LGH_SOURCE_DIR;
    if (!exists(folder, LANDMARK, path, sizeof path))
        folder = ".";
    if (!exists(folder, LANDMARK, path, sizeof path)) {
        snprintf(problem, capacity,
                 "the project's own files are neither in %s nor in the current folder; name a text "
                 "file or folder with --text",
                 LGH_SOURCE_DIR);
        return -1;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i)
        if (exists(folder, names[i], path, sizeof path) &&
            lgh_tool_corpus_add(corpus, path, problem, capacity) != 0)
            return -1;
    return 0;
}

void lgh_tool_corpus_free(lgh_tool_corpus *corpus) {
    free(corpus->text);
    corpus->text = NULL;
    corpus->length = 0;
}
