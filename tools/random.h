/* random.h - a small seeded generator, equal on every machine. */
#ifndef LGH_TOOL_RANDOM_H
#define LGH_TOOL_RANDOM_H

#include <stdint.h>

/* splitmix64: every state, 0 among them, starts a full-period sequence. */
static inline uint64_t lgh_tool_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Uniform in [-1, 1). */
static inline float lgh_tool_random_symmetric(uint64_t *state) {
    return (float)(lgh_tool_random(state) >> 40) / 8388608.0f - 1.0f;
}

#endif
