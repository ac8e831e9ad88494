/* demo_text.c - text to tokens and back: words where the vocabulary has them, bytes elsewhere. */
#include "demo_text.h"

#include <stdlib.h>
#include <string.h>

#define LONGEST_PIECE 32
#define LEAST_COUNT 2

/* ---- Pieces -------------------------------------------------------------------------------- */

typedef enum byte_class { LETTER, DIGIT, SPACE, NEWLINE, MARK } byte_class;

static byte_class classify(unsigned char byte) {
    if ((byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte >= 0x80)
        return LETTER;
    if (byte >= '0' && byte <= '9')
        return DIGIT;
    if (byte == '\n')
        return NEWLINE;
    return byte == ' ' || byte == '\t' || byte == '\r' ? SPACE : MARK;
}

/* Whether `byte` goes on a piece whose first byte, after a joiner, is `first`. */
static int continues(unsigned char first, unsigned char byte) {
    switch (classify(first)) {
    case LETTER:
        return classify(byte) == LETTER;
    case DIGIT:
        return classify(byte) == DIGIT;
    case SPACE:
    case NEWLINE: /* a line's end takes the next line's indent along */
        return classify(byte) == SPACE || classify(byte) == NEWLINE;
    case MARK:
        break;
    }
    return byte == first;
}

/* One space, or the underscore of an identifier, belongs to what follows it. */
static int is_joiner(unsigned char byte, unsigned char next) {
    byte_class following = classify(next);
    if (byte == ' ')
        return following == LETTER || following == DIGIT || following == MARK;
    return byte == '_' && following == LETTER;
}

/* The length of the first piece of a text of at least one byte. */
static size_t piece_length(const unsigned char *text, size_t length) {
    size_t first = length > 1 && is_joiner(text[0], text[1]);
    size_t end = first + 1;
    while (end < length && end < LONGEST_PIECE && continues(text[first], text[end]))
        ++end;
    return end;
}

/* ---- Hash table ---------------------------------------------------------------------------- */

/* FNV-1a, 64 bits. */
static size_t hash(const unsigned char *bytes, size_t length) {
    uint64_t state = 0xcbf29ce484222325u;
    for (size_t i = 0; i < length; ++i)
        state = (state ^ bytes[i]) * 0x100000001b3u;
    return (size_t)(state ^ state >> 32);
}

/* The slot that holds the word, or the empty one where it belongs. */
static int32_t *find_slot(const lgh_tool_vocabulary *vocabulary, const unsigned char *bytes,
                          size_t length) {
    size_t mask = vocabulary->slot_count - 1;
    for (size_t at = hash(bytes, length) & mask;; at = (at + 1) & mask) {
        int32_t index = vocabulary->slots[at];
        if (index < 0)
            return &vocabulary->slots[at];
        const lgh_tool_word *word = &vocabulary->words[index];
        if (word->length == length && memcmp(word->bytes, bytes, length) == 0)
            return &vocabulary->slots[at];
    }
}

/* Makes a table of at least twice as many slots as `words` and enters the words there are. */
static int rebuild_slots(lgh_tool_vocabulary *vocabulary, size_t words) {
    size_t count = 64;
    while (count < 2 * words)
        count *= 2;
    int32_t *slots = malloc(count * sizeof *slots);
    if (slots == NULL)
        return -1;
    memset(slots, 0xff, count * sizeof *slots);
    free(vocabulary->slots);
    vocabulary->slots = slots;
    vocabulary->slot_count = count;
    for (size_t i = 0; i < vocabulary->word_count; ++i) {
        const lgh_tool_word *word = &vocabulary->words[i];
        *find_slot(vocabulary, word->bytes, word->length) = (int32_t)i;
    }
    return 0;
}

/* ---- Counting ------------------------------------------------------------------------------ */

static int grow(lgh_tool_vocabulary *vocabulary) {
    size_t capacity = vocabulary->word_capacity > 0 ? 2 * vocabulary->word_capacity : 1024;
    lgh_tool_word *words = realloc(vocabulary->words, capacity * sizeof *words);
    if (words == NULL)
        return -1;
    vocabulary->words = words;
    vocabulary->word_capacity = capacity;
    return rebuild_slots(vocabulary, capacity);
}

static int count_piece(lgh_tool_vocabulary *vocabulary, const unsigned char *bytes, size_t length) {
    if (vocabulary->word_count == vocabulary->word_capacity && grow(vocabulary) != 0)
        return -1;
    int32_t *slot = find_slot(vocabulary, bytes, length);
    if (*slot < 0) {
        *slot = (int32_t)vocabulary->word_count;
        vocabulary->words[vocabulary->word_count++] = (lgh_tool_word){bytes, length, 0};
    }
    ++vocabulary->words[*slot].count;
    return 0;
}

/* Most frequent first; a total order, so that the vocabulary does not depend on qsort. */
static int compare_words(const void *left, const void *right) {
    const lgh_tool_word *a = left;
    const lgh_tool_word *b = right;
    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    if (a->length != b->length)
        return a->length > b->length ? -1 : 1;
    return memcmp(a->bytes, b->bytes, a->length);
}

static void keep_frequent(lgh_tool_vocabulary *vocabulary, size_t limit) {
    size_t kept = 0;
    if (vocabulary->word_count > 0)
        qsort(vocabulary->words, vocabulary->word_count, sizeof *vocabulary->words, compare_words);
    while (kept < vocabulary->word_count && kept < limit &&
           vocabulary->words[kept].count >= LEAST_COUNT)
        ++kept;
    vocabulary->word_count = kept;
}

int lgh_tool_vocabulary_build(lgh_tool_vocabulary *vocabulary, const unsigned char *text,
                              size_t length, size_t limit) {
    *vocabulary = (lgh_tool_vocabulary){0};
    for (int i = 0; i < LGH_TOOL_BYTE_TOKENS; ++i)
        vocabulary->bytes[i] = (unsigned char)i;
    for (size_t at = 0; at < length;) {
        size_t piece = piece_length(text + at, length - at);
        /* A piece of one byte is a token already. */
        if (piece > 1 && count_piece(vocabulary, text + at, piece) != 0)
            goto count;
        at += piece;
    }
    keep_frequent(vocabulary, limit);
    if (rebuild_slots(vocabulary, vocabulary->word_count) == 0)
        return 0;
count:
    lgh_tool_vocabulary_free(vocabulary);
    return -1;
}

void lgh_tool_vocabulary_free(lgh_tool_vocabulary *vocabulary) {
    free(vocabulary->words);
    free(vocabulary->slots);
    *vocabulary = (lgh_tool_vocabulary){0};
}

int32_t lgh_tool_vocabulary_size(const lgh_tool_vocabulary *vocabulary) {
    return LGH_TOOL_BYTE_TOKENS + (int32_t)vocabulary->word_count;
}

/* ---- Tokens -------------------------------------------------------------------------------- */

/* The longest word that the bytes begin with, or -1. */
static int32_t find_prefix(const lgh_tool_vocabulary *vocabulary, const unsigned char *bytes,
                           size_t length) {
    int32_t word = -1;
    for (; length > 1 && word < 0; --length)
        word = *find_slot(vocabulary, bytes, length);
    return word;
}

size_t lgh_tool_encode(const lgh_tool_vocabulary *vocabulary, const unsigned char *text,
                       size_t length, int32_t *tokens) {
    size_t count = 0;
    for (size_t at = 0; at < length;) {
        size_t end = at + piece_length(text + at, length - at);
        while (at < end) {
            int32_t word = find_prefix(vocabulary, text + at, end - at);
            tokens[count++] = word < 0 ? text[at] : LGH_TOOL_BYTE_TOKENS + word;
            at += word < 0 ? 1 : vocabulary->words[word].length;
        }
    }
    return count;
}

const unsigned char *lgh_tool_token_bytes(const lgh_tool_vocabulary *vocabulary, int32_t token,
                                          size_t *length) {
    if (token < LGH_TOOL_BYTE_TOKENS) {
        *length = 1;
        return &vocabulary->bytes[token];
    }
    const lgh_tool_word *word = &vocabulary->words[token - LGH_TOOL_BYTE_TOKENS];
    *length = word->length;
    return word->bytes;
}
