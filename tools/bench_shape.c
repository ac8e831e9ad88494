/* bench_shape.c - the sizes that the bench measures, by name. */
#include "bench_shape.h"

#include "arguments.h"

#include <stdio.h>
#include <string.h>

static const lgh_tool_shape models[] = {
    {"qwen3-8b", 8192, 4096, 151936},    {"qwen3.6-35b-a3b", 8192, 2048, 248320},
    {"gemma2-2b", 8192, 2304, 256000},   {"llama3.2-1b", 16384, 2048, 128256},
    {"deepseek-v3", 8192, 7168, 129280}, {"qwen2.5-0.5b", 8192, 896, 151936},
};

/* Nothing is tuned for these: a speed that holds only on the models shows here. */
static const lgh_tool_shape held[] = {
    {"4096x3584x152064", 4096, 3584, 152064},   {"2048x5120x151936", 2048, 5120, 151936},
    {"32768x1536x262144", 32768, 1536, 262144}, {"1024x8192x128256", 1024, 8192, 128256},
    {"8192x2880x201088", 8192, 2880, 201088},   {"16384x4096x32000", 16384, 4096, 32000},
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

lgh_tool_shape lgh_tool_shape_make(int64_t tokens, int64_t hidden, int64_t vocab) {
    lgh_tool_shape shape = {"", tokens, hidden, vocab};
    snprintf(shape.name, sizeof shape.name, "%lldx%lldx%lld", (long long)tokens, (long long)hidden,
             (long long)vocab);
    return shape;
}

/* Reads "NxDxV". */
static int parse_numbers(lgh_tool_shape *shape, const char *name) {
    int64_t sizes[3];
    char number[16];
    for (int i = 0; i < 3; ++i) {
        size_t length = strcspn(name, "x");
        if (length >= sizeof number || (name[length] == 'x') != (i < 2))
            return -1;
        memcpy(number, name, length);
        number[length] = '\0';
        if (lgh_tool_parse_integer(number, &sizes[i]) != 0 || sizes[i] < 1 ||
            sizes[i] > LGH_TOOL_SIZE_MOST || (i == 2 && sizes[i] < LGH_TOOL_VOCAB_LEAST))
            return -1;
        name += length + 1;
    }
    *shape = lgh_tool_shape_make(sizes[0], sizes[1], sizes[2]);
    return 0;
}

static int append(lgh_tool_shapes *shapes, const lgh_tool_shape *from, size_t count, char *problem,
                  size_t capacity) {
    size_t most = COUNT(shapes->items);
    if (count > most - shapes->count) {
        snprintf(problem, capacity, "more than %zu shapes; run the bench several times", most);
        return -1;
    }
    memcpy(&shapes->items[shapes->count], from, count * sizeof *from);
    shapes->count += count;
    return 0;
}

static int explain_unknown(const char *name, char *problem, size_t capacity) {
    for (size_t i = 0; i < COUNT(models); ++i)
        if (lgh_tool_is_near(name, models[i].name)) {
            snprintf(problem, capacity, "no shape '%s'; did you mean '%s'?", name, models[i].name);
            return -1;
        }
    size_t length = (size_t)snprintf(problem, capacity, "no shape '%s'; known are", name);
    for (size_t i = 0; i < COUNT(models) && length < capacity; ++i)
        length += (size_t)snprintf(problem + length, capacity - length, " %s,", models[i].name);
    if (length < capacity)
        snprintf(problem + length, capacity - length, " models, held and NxDxV");
    return -1;
}

static int append_named(lgh_tool_shapes *shapes, const char *name, char *problem, size_t capacity) {
    lgh_tool_shape numbers;
    if (strcmp(name, "models") == 0)
        return append(shapes, models, COUNT(models), problem, capacity);
    if (strcmp(name, "held") == 0)
        return append(shapes, held, COUNT(held), problem, capacity);
    for (size_t i = 0; i < COUNT(models); ++i)
        if (strcmp(name, models[i].name) == 0)
            return append(shapes, &models[i], 1, problem, capacity);
    if (parse_numbers(&numbers, name) == 0)
        return append(shapes, &numbers, 1, problem, capacity);
    return explain_unknown(name, problem, capacity);
}

int lgh_tool_shapes_parse(lgh_tool_shapes *shapes, const char *list, char *problem,
                          size_t capacity) {
    for (;;) {
        char name[48];
        size_t length = strcspn(list, ",");
        snprintf(name, sizeof name, "%.*s", (int)(length < 47 ? length : 47), list);
        if (append_named(shapes, name, problem, capacity) != 0)
            return -1;
        if (list[length] == '\0')
            return 0;
        list += length + 1;
    }
}
