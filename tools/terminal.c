/* terminal.c - what the place that output goes to can show. */
#include "terminal.h"

#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int lgh_tool_terminal_is_live(FILE *stream) {
    const char *term = getenv("TERM");
    if (term == NULL || strcmp(term, "dumb") == 0)
        return 0;
    return isatty(fileno(stream));
}

int lgh_tool_terminal_width(FILE *stream) {
    struct winsize size;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

int lgh_tool_terminal_is_utf8(void) {
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

const char *lgh_tool_terminal_style(FILE *stream, lgh_tool_style style) {
    static const char *const sequences[] = {"\033[0m", "\033[1m", "\033[2m", "\033[32m",
                                            "\033[31m"};
    const char *no_color =
        getenv("NO_COLOR"); /* https://no-color.org: any value but an empty one */
    if ((no_color != NULL && no_color[0] != '\0') || !lgh_tool_terminal_is_live(stream))
        return "";
    return sequences[style];
}

/* UTF-8 has blocks of one to eight eighths of a column: U+258F down to U+2588. */
static void print_block(FILE *stream, int eighths) {
    fprintf(stream, "\xe2\x96%c", 0x90 - eighths);
}

void lgh_tool_terminal_bar(FILE *stream, double fraction, int cells, int padded) {
    if (!(fraction > 0))
        fraction = 0;
    if (fraction > 1)
        fraction = 1;
    int utf8 = lgh_tool_terminal_is_utf8();
    int eighths = (int)(fraction * cells * 8 + 0.5);
    int full = utf8 ? eighths / 8 : (eighths + 4) / 8;
    int used = full;
    for (int i = 0; i < full; ++i)
        utf8 ? print_block(stream, 8) : (void)fputc('#', stream);
    if (utf8 && eighths % 8 != 0) {
        print_block(stream, eighths % 8);
        ++used;
    }
    if (padded)
        fprintf(stream, "%*s", cells - used, "");
}
