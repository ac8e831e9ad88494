/* progress.h - how far a long job has come: one redrawn line, or a plain line now and then. */
#ifndef LGH_TOOL_PROGRESS_H
#define LGH_TOOL_PROGRESS_H

#include <stdint.h>
#include <stdio.h>

typedef struct lgh_tool_progress {
    FILE *stream;
    const char *label;
    int64_t total;
    int live;       /* the line is redrawn in place */
    int64_t shown;  /* the count last shown, -1 before the first */
    double started; /* seconds of lgh_tool_now */
    double drawn;
} lgh_tool_progress;

/** Seconds on a clock that only goes forward. */
double lgh_tool_now(void);

void lgh_tool_progress_start(lgh_tool_progress *progress, FILE *stream, const char *label,
                             int64_t total);

/** Whether lgh_tool_progress_show(done) would print, so that a note need not be made in vain. */
int lgh_tool_progress_is_due(const lgh_tool_progress *progress, int64_t done);

/** Shows the count with a note, such as the loss, if it is due. */
void lgh_tool_progress_show(lgh_tool_progress *progress, int64_t done, const char *note);

/** Ends a redrawn line; before any other output, a failure's message included. */
void lgh_tool_progress_end(lgh_tool_progress *progress);

#endif
