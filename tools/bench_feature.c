/* bench_feature.c - what is asked of a plan and its calls: outputs, gradients and features. */
#include "bench_feature.h"

#define LOGP LGH_OUTPUT_LOGP
#define LSE LGH_OUTPUT_LSE
#define SOFTCAP 30.0f /* Gemma's */
#define PADDING 256

/* Every row of the table starts with one of these. */
#define FORWARD_PASS .calls = LGH_TOOL_FORWARD
#define BACKWARD_PASS .calls = LGH_TOOL_BACKWARD, .dhidden = LGH_FP32, .dweight = LGH_FP32
#define BOTH_PASSES                                                                                \
    .calls = LGH_TOOL_BOTH, .outputs = LOGP | LSE, .dhidden = LGH_FP32, .dweight = LGH_FP32

const lgh_tool_feature lgh_tool_features[] = {
    {"logp alone", FORWARD_PASS, .outputs = LOGP},
    {"lse", FORWARD_PASS, .outputs = LOGP | LSE},
    {"entropy", FORWARD_PASS, .outputs = LOGP | LGH_OUTPUT_ENTROPY},
    {"logp at T = 1", FORWARD_PASS, .outputs = LOGP | LGH_OUTPUT_LOGP_AT_ONE},
    {"best", FORWARD_PASS, .outputs = LOGP | LGH_OUTPUT_BEST},
    {"every output", FORWARD_PASS, .outputs = LGH_OUTPUT_ALL},
    {"bias, BF16", FORWARD_PASS, .outputs = LOGP, .bias = LGH_BF16},
    {"bias, FP32", FORWARD_PASS, .outputs = LOGP, .bias = LGH_FP32},
    {"softcap", FORWARD_PASS, .outputs = LOGP, .softcap = SOFTCAP},
    {"logits rounded to BF16", FORWARD_PASS, .outputs = LOGP, .rounding = LGH_BF16},
    {"a temperature per token", FORWARD_PASS, .outputs = LOGP, .token_temperatures = 1},
    {"counters", FORWARD_PASS, .outputs = LOGP, .counters = 1},
    {"256 entries of padding", FORWARD_PASS, .outputs = LOGP, .padding = PADDING},
    {"live list of every row", FORWARD_PASS, .outputs = LOGP, .live_step = 1},
    {"live list of 10 %", FORWARD_PASS, .outputs = LOGP, .live_step = 10},

    {"grad_logp alone", BACKWARD_PASS, .outputs = LSE},
    {"grad_entropy", BACKWARD_PASS, .outputs = LSE | LGH_OUTPUT_ENTROPY, .grad_entropy = 1},
    {"grad_lse", BACKWARD_PASS, .outputs = LSE, .grad_lse = 1},
    {"a temperature per token", BACKWARD_PASS, .outputs = LSE, .token_temperatures = 1},
    {"bias and dbias", BACKWARD_PASS, .outputs = LSE, .bias = LGH_FP32, .dbias = 1},
    {"softcap", BACKWARD_PASS, .outputs = LSE, .softcap = SOFTCAP},
    {"logits rounded to BF16", BACKWARD_PASS, .outputs = LSE, .rounding = LGH_BF16},
    {"256 entries of padding", BACKWARD_PASS, .outputs = LSE, .padding = PADDING},
    {"padding, softmax gradient", BACKWARD_PASS, .outputs = LSE, .padding = PADDING,
     .oov_policy = LGH_OOV_SOFTMAX},
    {"accumulation into dweight", BACKWARD_PASS, .outputs = LSE, .accumulates = 1},
    {"live list of every row", BACKWARD_PASS, .outputs = LSE, .live_step = 1},

    {"logp, lse and grad_logp", BOTH_PASSES},
    {"live list of 10 %", BOTH_PASSES, .live_step = 10},
};

const size_t lgh_tool_feature_count = sizeof lgh_tool_features / sizeof lgh_tool_features[0];

int64_t lgh_tool_feature_valid(const lgh_tool_feature *feature, int64_t vocab) {
    return feature->padding < vocab ? vocab - feature->padding : (vocab + 1) / 2;
}

int64_t lgh_tool_feature_live(const lgh_tool_feature *feature, int64_t tokens) {
    const int64_t step = feature->live_step > 0 ? feature->live_step : 1;
    return (tokens + step - 1) / step;
}

int lgh_tool_feature_is_live(const lgh_tool_feature *feature, int64_t token) {
    return feature->live_step == 0 || token % feature->live_step == 0;
}

lgh_plan_options lgh_tool_feature_options(const lgh_tool_feature *f, const lgh_tool_shape *shape,
                                          const lgh_tool_dtypes *dtypes) {
    lgh_plan_options o = LGH_PLAN_OPTIONS_INIT;
    o.hidden_size = shape->hidden;
    o.vocab_size = shape->vocab;
    o.max_tokens = shape->tokens;
    o.hidden_dtype = dtypes->hidden;
    o.weight_dtype = dtypes->weight;
    o.dhidden_dtype = f->dhidden;
    o.dweight_dtype = f->dweight;
    o.logits_rounding = f->rounding;
    o.outputs = f->outputs;
    o.vocab_valid = lgh_tool_feature_valid(f, shape->vocab);
    o.bias_dtype = f->bias;
    o.dbias_dtype = f->dbias ? LGH_FP32 : LGH_DTYPE_NONE;
    o.softcap = f->softcap;
    o.oov_policy = f->oov_policy;
    o.live_lists = f->live_step > 0;
    return o;
}
