/* random.c - numbers that are the same in every run and on every machine. */
#include "harness.h"

#include <math.h>

#include "value.h"

/* splitmix64 (Steele, Lea, Flood 2014): a Weyl sequence through a mixing function. */
uint64_t lgh_random_bits(lgh_random *random) {
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double lgh_random_uniform(lgh_random *random) {
    return (double)(lgh_random_bits(random) >> 11) * 0x1p-53;
}

/* Box and Muller's transform; 1 - u keeps the logarithm finite. */
double lgh_random_normal(lgh_random *random) {
    double radius = sqrt(-2.0 * log(1.0 - lgh_random_uniform(random)));
    return radius * cos(6.283185307179586 * lgh_random_uniform(random));
}

int64_t lgh_random_below(lgh_random *random, int64_t limit) {
    return (int64_t)(lgh_random_uniform(random) * (double)limit);
}

void lgh_random_fill_fp32(lgh_random *random, float *to, size_t count, double scale) {
    for (size_t i = 0; i < count; i++)
        to[i] = (float)(scale * lgh_random_normal(random));
}

void lgh_random_fill_bf16(lgh_random *random, uint16_t *to, size_t count, double scale) {
    for (size_t i = 0; i < count; i++)
        to[i] = lgh__bf16_from_float((float)(scale * lgh_random_normal(random)));
}

void lgh_widen_fp32(double *to, const float *from, size_t count) {
    for (size_t i = 0; i < count; i++)
        to[i] = (double)from[i];
}

void lgh_widen_bf16(double *to, const uint16_t *from, size_t count) {
    for (size_t i = 0; i < count; i++)
        to[i] = (double)lgh__float_from_bf16(from[i]);
}
