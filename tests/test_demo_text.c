/* test_demo_text.c - the demo's text: files and folders, tokens and back, and what is held out. */
#include "../tools/demo_data.h"
#include "../tools/demo_files.h"
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Tokens -------------------------------------------------------------------------------- */

static const char prose[] = "The turtle swims. The turtle, which swims_far and swims_deep, is\n"
                            "    1234 years old; the sea --- \xc3\xa9t\xc3\xa9 --- is 1234 too.\n"
                            "    The end_of the_end ==== the sea ====\n";

static unsigned char *make_long_text(size_t *length) {
    static const size_t repeats = 200;
    *length = repeats * (sizeof prose - 1);
    unsigned char *text = malloc(*length);
    assert_non_null(text);
    for (size_t i = 0; i < repeats; ++i)
        memcpy(text + i * (sizeof prose - 1), prose, sizeof prose - 1);
    return text;
}

static lgh_tool_vocabulary build(const void *text, size_t length, size_t limit) {
    lgh_tool_vocabulary vocabulary;
    assert_int_equal(lgh_tool_vocabulary_build(&vocabulary, text, length, limit), 0);
    return vocabulary;
}

/* Encodes, checks every token's range, decodes and compares; returns the number of tokens. */
static size_t round_trip(const lgh_tool_vocabulary *vocabulary, const void *text, size_t length) {
    int32_t *tokens = malloc((length + 1) * sizeof *tokens);
    unsigned char *decoded = malloc(length + 1);
    assert_non_null(tokens);
    assert_non_null(decoded);
    size_t count = lgh_tool_encode(vocabulary, text, length, tokens);
    size_t used = 0;
    assert_true(count <= length);
    for (size_t i = 0; i < count; ++i) {
        size_t bytes;
        assert_in_range(tokens[i], 0, lgh_tool_vocabulary_size(vocabulary) - 1);
        const unsigned char *from = lgh_tool_token_bytes(vocabulary, tokens[i], &bytes);
        assert_true(bytes >= 1 && used + bytes <= length);
        memcpy(decoded + used, from, bytes);
        used += bytes;
    }
    assert_int_equal(used, length);
    lgh_assert_same_bytes(decoded, text, length, "decoded text");
    free(tokens);
    free(decoded);
    return count;
}

static void text_comes_back_from_its_tokens(void **state) {
    size_t length;
    (void)state;
    unsigned char *text = make_long_text(&length);
    lgh_tool_vocabulary vocabulary = build(text, length, 100);
    size_t count = round_trip(&vocabulary, text, length);
    assert_true(vocabulary.word_count > 20);
    assert_true(count < length / 3);
    lgh_tool_vocabulary_free(&vocabulary);
    free(text);
}

static void any_bytes_come_back_from_their_tokens(void **state) {
    lgh_random random = {7};
    unsigned char bytes[5000];
    (void)state;
    lgh_tool_vocabulary of_prose = build(prose, sizeof prose - 1, 100);
    for (int round = 0; round < 20; ++round) {
        size_t length = (size_t)lgh_random_below(&random, sizeof bytes + 1);
        /* Few different bytes make long runs and many words, all of them make neither. */
        int64_t kinds = round % 2 == 0 ? 256 : 4;
        for (size_t i = 0; i < length; ++i)
            bytes[i] = (unsigned char)lgh_random_below(&random, kinds);
        lgh_tool_vocabulary of_bytes = build(bytes, length, 200);
        round_trip(&of_bytes, bytes, length);
        round_trip(&of_prose, bytes, length);
        lgh_tool_vocabulary_free(&of_bytes);
    }
    lgh_tool_vocabulary_free(&of_prose);
}

static void a_text_of_no_bytes_has_no_tokens(void **state) {
    (void)state;
    lgh_tool_vocabulary vocabulary = build("", 0, 100);
    assert_int_equal(lgh_tool_vocabulary_size(&vocabulary), LGH_TOOL_BYTE_TOKENS);
    assert_int_equal(round_trip(&vocabulary, "", 0), 0);
    assert_int_equal(round_trip(&vocabulary, "abc", 3), 3);
    lgh_tool_vocabulary_free(&vocabulary);
}

static void the_most_frequent_words_are_kept(void **state) {
    static const char text[] = "cc,cc,cc,bb,bb,bb,bb,aa,aa,dd,";
    (void)state;
    lgh_tool_vocabulary vocabulary = build(text, sizeof text - 1, 2);
    assert_int_equal(vocabulary.word_count, 2);
    assert_memory_equal(vocabulary.words[0].bytes, "bb", 2);
    assert_memory_equal(vocabulary.words[1].bytes, "cc", 2);
    round_trip(&vocabulary, text, sizeof text - 1);
    lgh_tool_vocabulary_free(&vocabulary);
    vocabulary = build(text, sizeof text - 1, 100);
    assert_int_equal(vocabulary.word_count, 3); /* dd occurs once */
    lgh_tool_vocabulary_free(&vocabulary);
}

/* ---- Files --------------------------------------------------------------------------------- */

static char folder[] = "/tmp/lgh_demo_text_XXXXXX";

static void write_file(const char *name, const void *bytes, size_t length) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static int make_folder(void **state) {
    char path[128];
    (void)state;
    strcpy(folder + sizeof folder - 7, "XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/inner", folder);
    return mkdir(path, 0700);
}

static int remove_folder(void **state) {
    static const char *const names[] = {"b.txt",   "a.txt",       "empty", "binary",
                                        ".hidden", "inner/c.txt", "inner"};
    char path[128];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
    return rmdir(folder);
}

static int add(lgh_tool_corpus *corpus, const char *name, char problem[256]) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    problem[0] = '\0';
    return lgh_tool_corpus_add(corpus, path, problem, 256);
}

static void a_folder_gives_its_text_files_in_order(void **state) {
    char problem[256];
    lgh_tool_corpus corpus = {.limit = 1000};
    (void)state;
    write_file("b.txt", "bbb", 3);
    write_file("a.txt", "aa", 2);
    write_file("inner/c.txt", "cccc", 4);
    write_file("empty", "", 0);
    write_file("binary", "x\0y", 3);
    write_file(".hidden", "hidden", 6);
    assert_int_equal(add(&corpus, ".", problem), 0);
    assert_int_equal(corpus.length, 9);
    assert_memory_equal(corpus.text, "aabbbcccc", 9);
    assert_int_equal(corpus.files, 3);
    assert_int_equal(corpus.is_cut, 0);
    lgh_tool_corpus_free(&corpus);
}

static void the_limit_cuts_the_text(void **state) {
    char problem[256];
    lgh_tool_corpus corpus = {.limit = 4};
    (void)state;
    write_file("a.txt", "aa", 2);
    write_file("b.txt", "bbb", 3);
    assert_int_equal(add(&corpus, ".", problem), 0);
    assert_int_equal(corpus.length, 4);
    assert_memory_equal(corpus.text, "aabb", 4);
    assert_int_equal(corpus.is_cut, 1);
    lgh_tool_corpus_free(&corpus);
}

static void a_binary_file_by_name_is_refused(void **state) {
    char problem[256];
    lgh_tool_corpus corpus = {.limit = 1000};
    (void)state;
    write_file("binary", "x\0y", 3);
    assert_int_equal(add(&corpus, "binary", problem), -1);
    lgh_assert_contains(problem, "is not text");
    assert_int_equal(corpus.length, 0);
    lgh_tool_corpus_free(&corpus);
}

static void a_missing_file_by_name_is_refused(void **state) {
    char problem[256];
    lgh_tool_corpus corpus = {.limit = 1000};
    (void)state;
    assert_int_equal(add(&corpus, "nowhere", problem), -1);
    lgh_assert_contains(problem, "nowhere");
    lgh_assert_contains(problem, "No such file");
    lgh_tool_corpus_free(&corpus);
}

static void an_empty_file_gives_no_text_and_no_data(void **state) {
    char problem[256];
    lgh_tool_corpus corpus = {.limit = 1000};
    lgh_tool_data data;
    (void)state;
    write_file("empty", "", 0);
    assert_int_equal(add(&corpus, "empty", problem), 0);
    assert_int_equal(corpus.length, 0);
    assert_int_equal(corpus.files, 0);
    assert_int_equal(lgh_tool_data_create(&data, corpus.text, corpus.length, 100, 100, 1, problem,
                                          sizeof problem),
                     -1);
    lgh_assert_contains(problem, "0 tokens");
    lgh_tool_corpus_free(&corpus);
}

/* ---- Data ---------------------------------------------------------------------------------- */

static lgh_tool_data make_data(const unsigned char *text, size_t length, size_t limit) {
    char problem[256];
    lgh_tool_data data;
    assert_int_equal(
        lgh_tool_data_create(&data, text, length, 100, limit, 1, problem, sizeof problem), 0);
    return data;
}

static void no_position_is_both_trained_on_and_held_out(void **state) {
    size_t length;
    (void)state;
    unsigned char *text = make_long_text(&length);
    lgh_tool_data data = make_data(text, length, 1000000);
    unsigned char *seen = calloc(data.token_count, 1);
    assert_non_null(seen);
    for (size_t i = 0; i < data.training_count; ++i)
        seen[data.training[i]] += 1;
    for (size_t i = 0; i < data.held_out_count; ++i)
        seen[data.held_out[i]] += 1;
    for (size_t i = 0; i < data.token_count; ++i)
        assert_int_equal(seen[i], 1);
    double share = (double)data.held_out_count / (double)data.token_count;
    lgh_assert_close(share, 0.1, 0.02, "share of held-out positions");
    free(seen);
    lgh_tool_data_free(&data);
    free(text);
}

static void the_limit_holds_for_held_out_positions(void **state) {
    size_t length;
    (void)state;
    unsigned char *text = make_long_text(&length);
    lgh_tool_data data = make_data(text, length, 100);
    assert_in_range(data.held_out_count, 50, 100);
    lgh_tool_data_free(&data);
    free(text);
}

static void an_epoch_draws_every_position_once(void **state) {
    size_t length;
    (void)state;
    unsigned char *text = make_long_text(&length);
    lgh_tool_data data = make_data(text, length, 1000);
    size_t *drawn = malloc(data.training_count * sizeof *drawn);
    unsigned char *seen = calloc(data.token_count, 1);
    assert_non_null(drawn);
    assert_non_null(seen);
    for (int epoch = 1; epoch <= 2; ++epoch) {
        size_t half = data.training_count / 2;
        lgh_tool_data_draw(&data, drawn, half);
        lgh_tool_data_draw(&data, drawn + half, data.training_count - half);
        for (size_t i = 0; i < data.training_count; ++i)
            seen[drawn[i]] += 1;
        for (size_t i = 0; i < data.training_count; ++i)
            assert_int_equal(seen[drawn[i]], epoch);
    }
    free(seen);
    free(drawn);
    lgh_tool_data_free(&data);
    free(text);
}

static void a_context_is_what_stands_before_its_target(void **state) {
    int32_t contexts[2 * 3];
    int32_t targets[2];
    size_t length;
    (void)state;
    unsigned char *text = make_long_text(&length);
    lgh_tool_data data = make_data(text, length, 1000);
    const size_t positions[] = {1, 20};
    lgh_tool_data_gather(&data, positions, 2, 3, contexts, targets);
    const int32_t *tokens = data.tokens;
    const int32_t expected[] = {'\n', '\n', tokens[0], tokens[17], tokens[18], tokens[19]};
    lgh_assert_same_bytes(contexts, expected, sizeof expected, "contexts");
    assert_int_equal(targets[0], tokens[1]);
    assert_int_equal(targets[1], tokens[20]);
    lgh_tool_data_free(&data);
    free(text);
}

#define file_test(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_comes_back_from_its_tokens),
        cmocka_unit_test(any_bytes_come_back_from_their_tokens),
        cmocka_unit_test(a_text_of_no_bytes_has_no_tokens),
        cmocka_unit_test(the_most_frequent_words_are_kept),
        file_test(a_folder_gives_its_text_files_in_order),
        file_test(the_limit_cuts_the_text),
        file_test(a_binary_file_by_name_is_refused),
        file_test(a_missing_file_by_name_is_refused),
        file_test(an_empty_file_gives_no_text_and_no_data),
        cmocka_unit_test(no_position_is_both_trained_on_and_held_out),
        cmocka_unit_test(the_limit_holds_for_held_out_positions),
        cmocka_unit_test(an_epoch_draws_every_position_once),
        cmocka_unit_test(a_context_is_what_stands_before_its_target),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
