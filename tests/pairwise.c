/* pairwise.c - a greedy covering of all pairs: each row begins with a pair that is still missing,
 * and each of its other choices is the one that brings most missing pairs. */
#include "pairwise.h"

#include "harness.h"

#include <string.h>

#define UNSET (-1)

typedef struct cover {
    const int *levels;
    size_t factors;
    /* missing[f][g][a][b], f < g: level a of factor f has not met level b of factor g. */
    unsigned char missing[PAIRWISE_FACTORS][PAIRWISE_FACTORS][PAIRWISE_LEVELS][PAIRWISE_LEVELS];
} cover;

static unsigned char *pair(cover *c, size_t f, int a, size_t g, int b) {
    return f < g ? &c->missing[f][g][a][b] : &c->missing[g][f][b][a];
}

static void open_cover(cover *c, const int *levels, size_t factors) {
    memset(c, 0, sizeof *c);
    c->levels = levels;
    c->factors = factors;
    for (size_t f = 0; f < factors; ++f)
        for (size_t g = f + 1; g < factors; ++g)
            for (int a = 0; a < levels[f]; ++a)
                memset(c->missing[f][g][a], 1, (size_t)levels[g]);
}

/* Begins a row with the first missing pair; 0 if none is. */
static int begin_row(cover *c, pairwise_row *row) {
    for (size_t f = 0; f < c->factors; ++f)
        row->levels[f] = UNSET;
    for (size_t f = 0; f < c->factors; ++f)
        for (size_t g = f + 1; g < c->factors; ++g)
            for (int a = 0; a < c->levels[f]; ++a)
                for (int b = 0; b < c->levels[g]; ++b)
                    if (*pair(c, f, a, g, b)) {
                        row->levels[f] = a;
                        row->levels[g] = b;
                        return 1;
                    }
    return 0;
}

/* Missing pairs of a level with what the row has already. */
static int gain(cover *c, const pairwise_row *row, size_t f, int a) {
    int pairs = 0;
    for (size_t g = 0; g < c->factors; ++g)
        if (g != f && row->levels[g] != UNSET)
            pairs += *pair(c, f, a, g, row->levels[g]);
    return pairs;
}

/* Chance decides among equals: what is not asked for is mixed too. */
static void choose_level(cover *c, pairwise_row *row, size_t f, lgh_random *random) {
    const int count = c->levels[f];
    const int first = (int)lgh_random_below(random, count);
    int best = first, best_gain = gain(c, row, f, best);
    for (int i = 1; i < count; ++i) {
        const int level = (first + i) % count;
        const int level_gain = gain(c, row, f, level);
        if (level_gain > best_gain) {
            best = level;
            best_gain = level_gain;
        }
    }
    row->levels[f] = best;
}

static void take_pairs(cover *c, const pairwise_row *row) {
    for (size_t f = 0; f < c->factors; ++f)
        for (size_t g = f + 1; g < c->factors; ++g)
            *pair(c, f, row->levels[f], g, row->levels[g]) = 0;
}

size_t pairwise_cover(pairwise_row *rows, size_t capacity, const int *levels, size_t factors) {
    static cover c;
    lgh_random random = {5};
    size_t count = 0;
    pairwise_row row;
    assert_in_range(factors, 1, PAIRWISE_FACTORS);
    for (size_t f = 0; f < factors; ++f)
        assert_in_range(levels[f], 1, PAIRWISE_LEVELS);
    open_cover(&c, levels, factors);
    while (begin_row(&c, &row)) {
        assert_true(count < capacity);
        for (size_t f = 0; f < factors; ++f)
            if (row.levels[f] == UNSET)
                choose_level(&c, &row, f, &random);
        take_pairs(&c, &row);
        rows[count++] = row;
    }
    return count;
}
