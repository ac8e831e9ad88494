/* demo_text.h - text to tokens and back: words where the vocabulary has them, bytes elsewhere. */
#ifndef LGH_TOOL_DEMO_TEXT_H
#define LGH_TOOL_DEMO_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Tokens 0 .. 255 are the bytes, so any text has an encoding; words follow, most frequent first. */
#define LGH_TOOL_BYTE_TOKENS 256

typedef struct lgh_tool_word {
    const unsigned char *bytes; /* in the text that the vocabulary was built from */
    size_t length;
    size_t count;
} lgh_tool_word;

typedef struct lgh_tool_vocabulary {
    lgh_tool_word *words;
    size_t word_count;
    size_t word_capacity;
    int32_t *slots; /* a hash table of indices into words, -1 where empty */
    size_t slot_count;
    unsigned char bytes[LGH_TOOL_BYTE_TOKENS];
} lgh_tool_vocabulary;

/**
 * Collects the text's pieces (a word, number, run of one punctuation mark or of white space, with
 * the space before it) and keeps as words the `limit` most frequent that occur twice or more. The
 * text must outlive the vocabulary. Returns 0, or -1 when out of memory.
 */
int lgh_tool_vocabulary_build(lgh_tool_vocabulary *vocabulary, const unsigned char *text,
                              size_t length, size_t limit);

void lgh_tool_vocabulary_free(lgh_tool_vocabulary *vocabulary);

/** Bytes and words together. */
int32_t lgh_tool_vocabulary_size(const lgh_tool_vocabulary *vocabulary);

/** Writes the tokens of any text, at most `length` of them, and returns how many there are. */
size_t lgh_tool_encode(const lgh_tool_vocabulary *vocabulary, const unsigned char *text,
                       size_t length, int32_t *tokens);

/** The bytes that a token stands for. */
const unsigned char *lgh_tool_token_bytes(const lgh_tool_vocabulary *vocabulary, int32_t token,
                                          size_t *length);

#endif
