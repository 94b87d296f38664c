/* fabric/connector_env.c: LT_* variables replace what the code says; under `fabric run` a contradiction is an error. */
#include "fabric/connector_internal.h"

#include "base/env.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

bool fabric__connector_cli_used(void)
{
    int64_t used = 0;
    return th__env_int("LT_CLI_USED", 0, INT_MIN, INT_MAX, &used) == TH_OK && used != 0;
}

/* The value of LT_<name> in `*value`, NULL when it is not set. `code` is the code's text, `plain` its default. */
static th_status overriding(const char *variable, const char *option, const char *code, const char *plain, const char **value)
{
    *value = th__env(variable);
    if (*value == NULL || strcmp(*value, code) == 0 || strcmp(code, plain) == 0) return TH_OK;
    bool cli = fabric__connector_cli_used();
    TH__CHECK_PENDING();
    if (!cli) return TH_OK;
    return TH__FAIL(TH_ERR_VALUE,
                    "your code has fabric_new(.%s = %s) but it conflicts with the value `--%s=%s` set through the CLI; "
                    "remove it either from the CLI or from the code",
                    option, code, option, *value);
}

static th_status replace_text(fabric__choices *choices, const char *variable, const char *option, const char *plain,
                              const char **flag)
{
    const char *value, *code = *flag != NULL ? *flag : plain;
    TH__TRY(overriding(variable, option, code, plain, &value));
    if (value == NULL) return TH_OK;
    *flag = fabric__choices_text(choices, value);
    return *flag != NULL ? TH_OK : th__pending();
}

/* The same where the code gave an object, which the variable's name then replaces. */
static th_status replace_object(fabric__choices *choices, const char *variable, const char *option, const char *object_name,
                                const char **flag)
{
    const char *value;
    TH__TRY(overriding(variable, option, object_name, "auto", &value));
    if (value == NULL) return TH_OK;
    *flag = fabric__choices_text(choices, value);
    return *flag != NULL ? TH_OK : th__pending();
}

static th_status replace_accelerator(fabric__choices *choices)
{
    if (choices->accelerator == NULL) choices->accelerator = "auto";
    if (choices->accelerator_object == NULL)
        return replace_text(choices, "LT_ACCELERATOR", "accelerator", "auto", &choices->accelerator);
    if (strcmp(choices->accelerator, "auto") != 0)
        return TH__FAIL(TH_ERR_VALUE, "accelerator was given as a name ('%s') and as an object (%s); choose one",
                        choices->accelerator, fabric__accelerator_class(choices->accelerator_object));
    choices->accelerator = NULL;
    TH__TRY(replace_object(choices, "LT_ACCELERATOR", "accelerator", fabric__accelerator_class(choices->accelerator_object),
                           &choices->accelerator));
    if (choices->accelerator == NULL) return TH_OK;
    fabric_accelerator_free(choices->accelerator_object);
    choices->accelerator_object = NULL;
    return TH_OK;
}

static th_status replace_strategy(fabric__choices *choices)
{
    if (choices->strategy == NULL) choices->strategy = "auto";
    if (choices->strategy_object == NULL) return replace_text(choices, "LT_STRATEGY", "strategy", "auto", &choices->strategy);
    if (strcmp(choices->strategy, "auto") != 0)
        return TH__FAIL(TH_ERR_VALUE, "strategy was given as a name ('%s') and as an object (%s); choose one", choices->strategy,
                        fabric_strategy_name(choices->strategy_object));
    choices->strategy = NULL;
    TH__TRY(
        replace_object(choices, "LT_STRATEGY", "strategy", fabric_strategy_name(choices->strategy_object), &choices->strategy));
    if (choices->strategy == NULL) return TH_OK;
    fabric_strategy_free(choices->strategy_object);
    choices->strategy_object = NULL;
    return TH_OK;
}

static th_status replace_num_nodes(fabric__choices *choices)
{
    char code[16];
    const char *value;
    snprintf(code, sizeof code, "%d", choices->num_nodes);
    TH__TRY(overriding("LT_NUM_NODES", "num_nodes", code, "1", &value));
    if (value == NULL) return TH_OK;
    int64_t number;
    TH__TRY(th__env_int("LT_NUM_NODES", 1, INT_MIN, INT_MAX, &number));
    choices->num_nodes = (int)number;
    return TH_OK;
}

th_status fabric__apply_environment(fabric__choices *choices)
{
    TH__TRY(replace_accelerator(choices));
    TH__TRY(replace_strategy(choices));
    if (choices->devices == NULL) choices->devices = "auto";
    TH__TRY(replace_text(choices, "LT_DEVICES", "devices", "auto", &choices->devices));
    TH__TRY(replace_num_nodes(choices));
    const char *code = choices->precision != NULL ? choices->precision : "None", *value;
    TH__TRY(overriding("LT_PRECISION", "precision", code, "None", &value));
    if (value == NULL) return TH_OK;
    choices->precision = fabric__choices_text(choices, value);
    return choices->precision != NULL ? TH_OK : th__pending();
}
