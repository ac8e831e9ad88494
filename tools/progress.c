/* progress.c - how far a long job has come: one redrawn line, or a plain line now and then. */
#include "progress.h"

#include "terminal.h"

#include <string.h>
#include <time.h>

#define REDRAW_SECONDS 0.1
#define PLAIN_LINES 16 /* of a whole job, where nothing can be redrawn */

double lgh_tool_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void lgh_tool_progress_start(lgh_tool_progress *progress, FILE *stream, const char *label,
                             int64_t total) {
    progress->stream = stream;
    progress->label = label;
    progress->total = total > 0 ? total : 1;
    progress->live = lgh_tool_terminal_is_live(stream);
    progress->shown = -1;
    progress->started = lgh_tool_now();
    progress->drawn = 0;
}

int lgh_tool_progress_is_due(const lgh_tool_progress *progress, int64_t done) {
    if (progress->shown < 0 || done >= progress->total)
        return 1;
    if (progress->live)
        return lgh_tool_now() - progress->drawn >= REDRAW_SECONDS;
    return done * PLAIN_LINES / progress->total > progress->shown * PLAIN_LINES / progress->total;
}

static int digits(int64_t number) {
    int count = 1;
    for (; number >= 10; number /= 10)
        ++count;
    return count;
}

/* The bar takes what the text leaves, within reason; a narrow terminal gets a cut note. */
static void redraw(const lgh_tool_progress *progress, int64_t done, const char *note) {
    int width = digits(progress->total);
    int columns = lgh_tool_terminal_width(progress->stream) - 1;
    int fixed = (int)strlen(progress->label) + 2 * width + 7;
    int cells = columns - fixed - (int)strlen(note);
    cells = cells > 24 ? 24 : cells < 5 ? 5 : cells;
    int room = columns - fixed - cells;
    fprintf(progress->stream, "\r\033[K%s [", progress->label);
    lgh_tool_terminal_bar(progress->stream, (double)done / (double)progress->total, cells, 1);
    fprintf(progress->stream, "] %*lld/%lld  %.*s", width, (long long)done,
            (long long)progress->total, room > 0 ? room : 0, note);
    fflush(progress->stream);
}

void lgh_tool_progress_show(lgh_tool_progress *progress, int64_t done, const char *note) {
    if (!lgh_tool_progress_is_due(progress, done))
        return;
    if (progress->live)
        redraw(progress, done, note);
    else
        fprintf(progress->stream, "%s %*lld/%lld  %s\n", progress->label, digits(progress->total),
                (long long)done, (long long)progress->total, note);
    progress->shown = done;
    progress->drawn = lgh_tool_now();
}

void lgh_tool_progress_end(lgh_tool_progress *progress) {
    if (progress->live && progress->shown >= 0)
        fputc('\n', progress->stream);
    fflush(progress->stream);
    progress->live = 0;
}
