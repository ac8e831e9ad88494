/* cpu_exp.h - exp without branches or calls, so that compilers turn loops over it into vectors. */
#ifndef LGH_CPU_EXP_H
#define LGH_CPU_EXP_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/**
 * exp(u) to 1.5 units in the last place; 0 below -708 and infinity above 709, where libm still has
 * a few steps left. A NaN stays a NaN.
 *
 * exp(u) = 2^n exp(r) with n = round(u / ln 2) and |r| <= ln 2 / 2, and exp(r) is its Taylor sum up
 * to r^13, whose first missing term is below 2^-57.
 */
static inline double lgh__cpu_exp(double u) {
    const double shift = 0x1.8p52; /* adding it leaves round(n) in the low bits of the sum */
    double shifted = u * 0x1.71547652b82fep+0 + shift;
    double n = shifted - shift;
    /* ln 2 in two parts, the first with so many trailing zeros that n times it is exact. */
    double r = (u - n * 0x1.62e42fefa0000p-1) - n * 0x1.cf79abc9e3b3ap-40;

    double y = 1.0 / 6227020800.0;
    y = y * r + 1.0 / 479001600.0;
    y = y * r + 1.0 / 39916800.0;
    y = y * r + 1.0 / 3628800.0;
    y = y * r + 1.0 / 362880.0;
    y = y * r + 1.0 / 40320.0;
    y = y * r + 1.0 / 5040.0;
    y = y * r + 1.0 / 720.0;
    y = y * r + 1.0 / 120.0;
    y = y * r + 1.0 / 24.0;
    y = y * r + 1.0 / 6.0;
    y = y * r + 0.5;
    y = y * r + 1.0;
    y = y * r + 1.0;

    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52; /* the exponent field of 2^n; the bits of `shift` fall out */
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    y *= scale;
    y = u < -708.0 ? 0.0 : y;
    return u > 709.0 ? (double)INFINITY : y;
}

#endif
