/* fabric/connector_internal.h: what the connector knows while it decides. */
#ifndef FABRIC_FABRIC_CONNECTOR_INTERNAL_H
#define FABRIC_FABRIC_CONNECTOR_INTERNAL_H

#include "base/error.h"
#include "fabric/connector.h"

/* Flags after the environment has had its say. Names are copies or static text; objects are owned until they are bound. */
typedef struct fabric__choices {
    /* what was asked for */
    const char *accelerator; /* "auto", "gpu" or a registered name; NULL when accelerator_object is set */
    const char *strategy;    /* lower case; NULL when strategy_object is set */
    const char *devices;
    int num_nodes;
    const char *precision; /* canonical; NULL: not given */
    fabric_accelerator *accelerator_object;
    fabric_strategy *strategy_object;
    fabric_precision *precision_object;
    fabric_checkpoint_io *checkpoint_io;
    fabric_environment *environment;
    /* what was decided */
    th_device *parallel_devices; /* freed with free() */
    size_t n_parallel_devices;
    char *owned[8]; /* texts to free */
    size_t n_owned;
} fabric__choices;

/* A copy of a text that lives as long as the choices; NULL with an error. */
const char *fabric__choices_text(fabric__choices *choices, const char *text);
/* "CPUAccelerator", "DDPStrategy": for messages. */
const char *fabric__accelerator_class(fabric_accelerator *accelerator);

/* Is an accelerator of that name registered and usable here? */
bool fabric__accelerator_available(const char *name);

/* The steps, in upstream's order: it decides which error a user sees first. */
th_status fabric__apply_environment(fabric__choices *choices);
th_status fabric__check_strategy_name(fabric__choices *choices);
th_status fabric__check_accelerator_name(fabric__choices *choices);
th_status fabric__check_mps_conflict(fabric__choices *choices);
th_status fabric__normalize_precision(fabric__choices *choices);
th_status fabric__take_plugins(fabric__choices *choices, fabric_plugins plugins);
th_status fabric__take_strategy_parts(fabric__choices *choices);
th_status fabric__check_devices(fabric__choices *choices);
th_status fabric__choose_accelerator(fabric__choices *choices);
th_status fabric__choose_devices(fabric__choices *choices);
th_status fabric__choose_environment(fabric__choices *choices);
th_status fabric__choose_strategy(fabric__choices *choices);
th_status fabric__choose_precision(fabric__choices *choices);

#endif
