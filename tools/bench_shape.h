/* bench_shape.h - the sizes that the bench measures, by name. */
#ifndef LGH_TOOL_BENCH_SHAPE_H
#define LGH_TOOL_BENCH_SHAPE_H

#include <stddef.h>
#include <stdint.h>

/* The largest of each size: the bytes of an FP32 matrix of any two stay far below 2^63. */
#define LGH_TOOL_SIZE_MOST ((int64_t)1 << 28)

typedef struct lgh_tool_shape {
    char name[48];
    int64_t tokens;
    int64_t hidden;
    int64_t vocab;
} lgh_tool_shape;

typedef struct lgh_tool_shapes {
    lgh_tool_shape items[32];
    size_t count;
} lgh_tool_shapes;

/* The least vocabulary: with one entry every log-prob and every gradient is 0. */
#define LGH_TOOL_VOCAB_LEAST 2

/** A shape named by its numbers, as in "4096x3584x152064". */
lgh_tool_shape lgh_tool_shape_make(int64_t tokens, int64_t hidden, int64_t vocab);

/**
 * Appends the shapes of a comma-separated list: model names, NxDxV, "models" for the heads of six
 * models, "held" for six that nothing was tuned for. Returns 0, or -1 with the reason in `problem`.
 */
int lgh_tool_shapes_parse(lgh_tool_shapes *shapes, const char *list, char *problem,
                          size_t capacity);

#endif
