/* What a user of the installed library writes first. */
#include <cfabric/cfabric.h>
#include <stdio.h>

int main(void)
{
    TH_SCOPE();
    th_tensor *x = th_requires_grad_(th_ones(TH_INTS(2, 3)), true);
    th_backward(th_sum(th_mul(x, x)));
    printf("cfabric %s, libtorch %s, gradient %g\n", fabric_version(), th_torch_version(), th_item(th_mean(th_grad(x))));
    return th_error() == TH_OK ? 0 : 1;
}
