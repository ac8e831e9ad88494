/* test_demo_model.c - the demo's own layers: gradients by central differences, Adam, rounding. */
#include "../tools/demo_model.h"
#include "harness.h"

#include <math.h>
#include <string.h>

enum { CONTEXT = 3, EMBEDDING = 4, HIDDEN = 5, VOCABULARY = 6, BATCH = 7 };

static const lgh_tool_model_shape shape = {CONTEXT, EMBEDDING, HIDDEN, VOCABULARY, BATCH};

static lgh_tool_model make_model(uint64_t seed) {
    lgh_tool_model model;
    assert_int_equal(lgh_tool_model_create(&model, &shape, seed), 0);
    return model;
}

static void make_contexts(lgh_random *random, int32_t contexts[BATCH * CONTEXT]) {
    for (int i = 0; i < BATCH * CONTEXT; ++i)
        contexts[i] = (int32_t)lgh_random_below(random, VOCABULARY);
}

/* A loss that is linear in hidden, so that `slopes` is its gradient there. */
static double loss_of(lgh_tool_model *model, const int32_t *contexts, const float *slopes) {
    double loss = 0;
    lgh_tool_model_forward(model, contexts, BATCH);
    for (int i = 0; i < BATCH * HIDDEN; ++i)
        loss += (double)model->hidden[i] * (double)slopes[i];
    return loss;
}

static void check_gradient(lgh_tool_model *model, lgh_tool_tensor *tensor, const int32_t *contexts,
                           const float *slopes, const char *what) {
    const float step = 1.0f / 128;
    for (size_t i = 0; i < tensor->count; ++i) {
        float kept = tensor->value[i];
        tensor->value[i] = kept + step;
        double above = loss_of(model, contexts, slopes);
        tensor->value[i] = kept - step;
        double below = loss_of(model, contexts, slopes);
        tensor->value[i] = kept;
        double expected = (above - below) / (2 * (double)step);
        lgh_assert_close((double)tensor->gradient[i], expected, 2e-3, what);
    }
}

static void gradients_equal_central_differences(void **state) {
    lgh_random random = {3};
    int32_t contexts[BATCH * CONTEXT];
    float slopes[BATCH * HIDDEN];
    (void)state;
    lgh_tool_model model = make_model(1);
    make_contexts(&random, contexts);
    lgh_random_fill_fp32(&random, slopes, BATCH * HIDDEN, 1);
    loss_of(&model, contexts, slopes);
    memcpy(model.dhidden, slopes, sizeof slopes);
    lgh_tool_model_backward(&model, contexts, BATCH);
    check_gradient(&model, &model.embedding, contexts, slopes, "embedding");
    check_gradient(&model, &model.layer, contexts, slopes, "layer");
    check_gradient(&model, &model.bias, contexts, slopes, "bias");
    lgh_tool_model_free(&model);
}

static void a_seed_gives_the_same_model_again(void **state) {
    (void)state;
    lgh_tool_model a = make_model(5);
    lgh_tool_model b = make_model(5);
    lgh_tool_model c = make_model(6);
    size_t bytes = a.head.count * sizeof *a.head.value;
    lgh_assert_same_bytes(a.head.value, b.head.value, bytes, "head");
    assert_memory_not_equal(a.head.value, c.head.value, bytes);
    lgh_tool_model_free(&a);
    lgh_tool_model_free(&b);
    lgh_tool_model_free(&c);
}

/* Adam's first step goes by the learning rate against the gradient's sign, whatever its size. */
static void the_first_update_has_the_learning_rates_size(void **state) {
    float before[HIDDEN];
    (void)state;
    lgh_tool_model model = make_model(1);
    for (int i = 0; i < HIDDEN; ++i)
        model.bias.gradient[i] = i % 2 == 0 ? 0.001f : -30.0f;
    memcpy(before, model.bias.value, sizeof before);
    lgh_tool_model_update(&model, 0.25f);
    for (int i = 0; i < HIDDEN; ++i)
        lgh_assert_close((double)(model.bias.value[i] - before[i]), i % 2 == 0 ? -0.25 : 0.25, 1e-4,
                         "step");
    lgh_tool_model_free(&model);
}

static void bf16_rounds_to_nearest_even(void **state) {
    static const struct {
        float value;
        uint16_t bits;
    } cases[] = {{1.0f, 0x3f80},        {-2.0f, 0xc000},       {1.00390625f, 0x3f80},
                 {1.01171875f, 0x3f82}, {1.00390637f, 0x3f81}, {0.0f, 0x0000},
                 {-0.0f, 0x8000},       {0.333333343f, 0x3eab}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        uint16_t bits;
        lgh_tool_to_bf16(&cases[i].value, &bits, 1);
        assert_int_equal(bits, cases[i].bits);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_central_differences),
        cmocka_unit_test(a_seed_gives_the_same_model_again),
        cmocka_unit_test(the_first_update_has_the_learning_rates_size),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
