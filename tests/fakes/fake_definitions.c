/* fake_definitions.c - what a cubin was specialised with, which the cubin itself does not show: the
 * entry of the kernel cache that holds the same code does (runtime/cubin.c). */
#include "fake_definitions.h"

#include "env.h"
#include "fake_state.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DEFINITIONS 1024

static FILE *open_file(const char *folder, const char *entry, const char *name) {
    char path[PATH_MAX];
    const int length = snprintf(path, sizeof path, "%s/%s/%s", folder, entry, name);
    return length > 0 && length < (int)sizeof path ? fopen(path, "rb") : NULL;
}

/* Whether the entry's code is this image. */
static int holds(const char *folder, const char *entry, const char *image, size_t bytes) {
    char part[4096];
    size_t compared = 0, count;
    FILE *file = open_file(folder, entry, "kernel.cubin");
    if (!file)
        return 0;
    while (compared < bytes && (count = fread(part, 1, sizeof part, file)) > 0) {
        count = count < bytes - compared ? count : bytes - compared;
        if (memcmp(part, image + compared, count) != 0)
            break;
        compared += count;
    }
    fclose(file);
    return compared == bytes;
}

static void read_line(fake_definitions *d, const char *line) {
    char name[64];
    int value;
    if (sscanf(line, "#define %63s %d", name, &value) != 2)
        return;
#define READ(member, its_name)                                                                     \
    if (strcmp(name, its_name) == 0)                                                               \
        d->member = value;
    FAKE_DEFINITIONS(READ)
#undef READ
}

static int read_definitions(fake_definitions *d, const char *folder, const char *entry) {
    char line[256];
    FILE *file = open_file(folder, entry, "definitions.h");
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file))
        read_line(d, line);
    fclose(file);
    return 1;
}

int fake_definitions_find(fake_definitions *d, const void *image, size_t bytes) {
    char cache[PATH_MAX - 16], folder[PATH_MAX];
    int found = 0;
    memset(d, 0xff, sizeof *d); /* -1 throughout */
    if (!lgh__env_cache_directory(cache, sizeof cache))
        cache[0] = 0;
    snprintf(folder, sizeof folder, "%s/cubin", cache);
    DIR *entries = opendir(folder);
    for (struct dirent *e = entries ? readdir(entries) : NULL; e && !found; e = readdir(entries))
        found = e->d_name[0] != '.' && holds(folder, e->d_name, image, bytes) &&
                read_definitions(d, folder, e->d_name);
    if (entries)
        closedir(entries);
    if (!found)
        fake_violation("a cubin that %s does not hold: its definitions are unknown", folder);
    return found;
}
