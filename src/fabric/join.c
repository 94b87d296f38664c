/* fabric/join.c: uneven inputs: a rank whose data has ended shadows the others. */
#include "fabric/internal.h"
#include <cfabric/strategies.h>

th_status fabric_join(fabric *fab)
{
    FABRIC__ENTER_LAUNCHED(fab);
    return fabric_strategy_ddp_join(fab->strategy);
}
