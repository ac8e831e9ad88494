#include <loggerhead/loggerhead.h>
#include <stdio.h>

int main(void) {
    float hidden[2][3] = {{1, 0, 2}, {0, 1, 1}}; /* two tokens, hidden size 3, vocabulary of 4 */
    float weight[4][3] = {{1, 2, 0}, {0, 1, 3}, {2, 0, 1}, {1, 1, 1}};
    int64_t targets[2] = {1, 3};
    float logp[2], entropy[2];

    lgh_context_options device = LGH_CONTEXT_OPTIONS_INIT; /* the CPU */
    lgh_plan_options shape = LGH_PLAN_OPTIONS_INIT;
    shape.hidden_size = 3, shape.vocab_size = 4, shape.max_tokens = 2;
    shape.hidden_dtype = shape.weight_dtype = LGH_FP32;
    lgh_forward_args args = LGH_FORWARD_ARGS_INIT;
    args.hidden = (lgh_const_matrix){hidden, 2, 3, 3, LGH_FP32};
    args.weight = (lgh_const_matrix){weight, 4, 3, 3, LGH_FP32};
    args.targets = targets, args.temperature.host = 0.7f;
    args.logp = logp, args.entropy = entropy;

    lgh_context *context;
    lgh_plan *plan;
    void *workspace;
    size_t bytes;
    if (lgh_context_create(&context, &device) || lgh_plan_create(&plan, context, &shape) ||
        lgh_plan_workspace_size(plan, LGH_PASS_FORWARD, 2, &bytes, NULL) ||
        lgh_memory_allocate(context, bytes, &workspace) ||
        lgh_forward(plan, &args, workspace, bytes, NULL))
        return fprintf(stderr, "%s\n", lgh_last_error()), 1;
    for (int i = 0; i < 2; i++)
        printf("token %d: log-prob %.4f, entropy %.4f\n", i, logp[i], entropy[i]);

    lgh_memory_free(context, workspace);
    lgh_plan_destroy(plan);
    lgh_context_destroy(context);
    return 0;
}
