/* demo_files.h - the text of files and folders, joined. */
#ifndef LGH_TOOL_DEMO_FILES_H
#define LGH_TOOL_DEMO_FILES_H

#include <stddef.h>

typedef struct lgh_tool_corpus {
    unsigned char *text; /* `length` bytes, no terminating zero */
    size_t length;
    size_t limit; /* bytes at which adding stops; set before the first call */
    int files;    /* that gave text */
    int is_cut;   /* the limit was reached */
} lgh_tool_corpus;

/**
 * Adds a text file, or every text file below a folder in the order of their names. Hidden names and
 * links in a folder are passed over, as is what holds a zero byte (not text) or cannot be read.
 * Returns 0, or -1 with the reason in `problem`: a path given by name must be readable text.
 */
int lgh_tool_corpus_add(lgh_tool_corpus *corpus, const char *path, char *problem, size_t capacity);

/** Adds the project's own files, from where it was built or else from the current folder. */
int lgh_tool_corpus_add_own(lgh_tool_corpus *corpus, char *problem, size_t capacity);

void lgh_tool_corpus_free(lgh_tool_corpus *corpus);

#endif
