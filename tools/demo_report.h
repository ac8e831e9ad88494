/* demo_report.h - the tables and little charts that the demo prints. */
#ifndef LGH_TOOL_DEMO_REPORT_H
#define LGH_TOOL_DEMO_REPORT_H

#include "demo_data.h"

#include <stddef.h>
#include <stdio.h>

/* Room for any text of the two functions below. */
typedef struct lgh_tool_figure {
    char text[32];
} lgh_tool_figure;

/** A count with its thousands apart, such as "4,352". */
lgh_tool_figure lgh_tool_count(size_t count);

/** Bytes in a unit that suits them, such as "3.57 GB". */
lgh_tool_figure lgh_tool_bytes(double bytes);

double lgh_tool_mean(const float *values, size_t count);

/** Prints a heading in bold after an empty line. */
void lgh_tool_print_heading(FILE *stream, const char *text);

/** Draws a series as one line of at most 48 bars; prints nothing where the locale has no bars. */
void lgh_tool_print_curve(FILE *stream, const float *values, size_t count);

/** Prints how the surprisals -logp, in nats, are spread. */
void lgh_tool_print_surprisal(FILE *stream, const float *logp, size_t count);

/** Prints a few consecutive held-out tokens with their scores at T = 1 and at another temperature,
 *  which `cooled` heads. */
void lgh_tool_print_passage(FILE *stream, const lgh_tool_data *data, const float *logp,
                            const float *cooled_logp, const float *entropy, const char *cooled);

#endif
