/* demo_report.c - the tables and little charts that the demo prints. */
#include "demo_report.h"

#include "terminal.h"

#include <string.h>

lgh_tool_figure lgh_tool_count(size_t count) {
    lgh_tool_figure figure;
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%zu", count);
    char *to = figure.text;
    for (int i = 0; i < length; ++i) {
        if (i > 0 && (length - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return figure;
}

lgh_tool_figure lgh_tool_bytes(double bytes) {
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    lgh_tool_figure figure;
    size_t unit = 0;
    for (; bytes >= 1000 && unit < sizeof units / sizeof units[0] - 1; ++unit)
        bytes /= 1000;
    snprintf(figure.text, sizeof figure.text, "%.*f %s", unit == 0 || bytes >= 100 ? 0 : 1, bytes,
             units[unit]);
    return figure;
}

double lgh_tool_mean(const float *values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i)
        sum += (double)values[i];
    return count > 0 ? sum / (double)count : 0;
}

void lgh_tool_print_heading(FILE *stream, const char *text) {
    fprintf(stream, "\n%s%s%s\n", lgh_tool_terminal_style(stream, LGH_TOOL_BOLD), text,
            lgh_tool_terminal_style(stream, LGH_TOOL_PLAIN));
}

void lgh_tool_print_curve(FILE *stream, const float *values, size_t count) {
    size_t cells = count < 48 ? count : 48;
    if (cells < 2 || !lgh_tool_terminal_is_utf8())
        return;
    float least = values[0];
    float most = values[0];
    for (size_t i = 1; i < count; ++i) {
        least = values[i] < least ? values[i] : least;
        most = values[i] > most ? values[i] : most;
    }
    fprintf(stream, "  loss  %.2f ", (double)values[0]);
    for (size_t cell = 0; cell < cells; ++cell) {
        size_t from = cell * count / cells;
        double mean = lgh_tool_mean(values + from, (cell + 1) * count / cells - from);
        double height = most > least ? (mean - (double)least) / (double)(most - least) : 0;
        /* U+2581 to U+2588, one to eight eighths of the line's height. */
        fprintf(stream, "\xe2\x96%c", 0x81 + (int)(height * 7 + 0.5));
    }
    fprintf(stream, " %.2f\n", (double)values[count - 1]);
}

void lgh_tool_print_surprisal(FILE *stream, const float *logp, size_t count) {
    static const float edges[] = {0.1f, 0.5f, 1, 2, 4, 6, 8, 10};
    enum { BINS = sizeof edges / sizeof edges[0] + 1 };
    size_t counts[BINS] = {0};
    size_t most = 1;
    for (size_t i = 0; i < count; ++i) {
        int bin = 0;
        while (bin < BINS - 1 && -logp[i] >= edges[bin])
            ++bin;
        most = ++counts[bin] > most ? counts[bin] : most;
    }
    for (int bin = 0; bin < BINS; ++bin) {
        if (bin < BINS - 1)
            fprintf(stream, "  %4.3g to %-4.3g", bin > 0 ? (double)edges[bin - 1] : 0.0,
                    (double)edges[bin]);
        else
            fprintf(stream, "  %4.3g up     ", (double)edges[bin - 1]);
        fprintf(stream, "%5.1f %%  ", 100.0 * (double)counts[bin] / (double)count);
        lgh_tool_terminal_bar(stream, (double)counts[bin] / (double)most, 40, 0);
        fputc('\n', stream);
    }
}

/* Writes a token between quotes as C would, cut to the width of the column. */
static void quote(const unsigned char *bytes, size_t length, char *text, size_t capacity) {
    size_t used = 0;
    text[used++] = '"';
    for (size_t i = 0; i < length && used + 6 < capacity; ++i) {
        if (bytes[i] == '\n')
            used += (size_t)snprintf(text + used, 5, "\\n");
        else if (bytes[i] < ' ' || bytes[i] > '~')
            used += (size_t)snprintf(text + used, 5, "\\x%02x", bytes[i]);
        else
            text[used++] = (char)bytes[i];
    }
    text[used++] = '"';
    text[used] = '\0';
}

/* Where in the middle of the held-out positions `rows` of them follow one another in the text. */
static size_t find_passage(const lgh_tool_data *data, size_t rows) {
    const size_t *positions = data->held_out;
    for (size_t i = data->held_out_count / 2; i + rows <= data->held_out_count; ++i)
        if (positions[i + rows - 1] == positions[i] + rows - 1)
            return i;
    return 0;
}

void lgh_tool_print_passage(FILE *stream, const lgh_tool_data *data, const float *logp,
                            const float *cooled_logp, const float *entropy, const char *cooled) {
    size_t rows = data->held_out_count < 10 ? data->held_out_count : 10;
    size_t first = find_passage(data, rows);
    fprintf(stream, "  %-24s%14s%16s%14s\n", "token", "log-prob", cooled, "entropy");
    for (size_t i = first; i < first + rows; ++i) {
        char text[24];
        size_t length;
        int32_t token = data->tokens[data->held_out[i]];
        const unsigned char *bytes = lgh_tool_token_bytes(&data->vocabulary, token, &length);
        quote(bytes, length, text, sizeof text);
        fprintf(stream, "  %-24s%14.3f%16.3f%14.3f\n", text, (double)logp[i],
                (double)cooled_logp[i], (double)entropy[i]);
    }
}
