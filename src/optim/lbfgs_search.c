/* optim/lbfgs_search.c: the strong-Wolfe line search of LBFGS (after minFunc, as in PyTorch). */
#include "optim/lbfgs.h"

#include <cfabric/ops.h>
#include <stdlib.h>

/* A point on the line: step, loss, gradient (owned handle), slope. */
typedef struct point {
    th__number t, f, gtd;
    th_tensor *g;
} point;

static void set_point(point *to, th__number t, th__number f, th_tensor *g, th__number gtd)
{
    th_tensor *kept = g != NULL ? th_retain(g) : NULL;
    th_free(to->g);
    *to = (point){t, f, gtd, kept};
}

static void copy_point(point *to, const point *from) { set_point(to, from->t, from->f, from->g, from->gtd); }

/* The minimum of the cubic through two points with slopes, kept within bounds. */
static th__number cubic(const point *p1, const point *p2, bool bounded, th__number low, th__number high)
{
    th__number x1 = p1->t, x2 = p2->t, f1 = p1->f, f2 = p2->f, g1 = p1->gtd, g2 = p2->gtd;
    bool ordered = th__less_equal(x1, x2);
    if (!bounded) {
        low = ordered ? x1 : x2;
        high = ordered ? x2 : x1;
    }
    th__number d1 = th__minus(th__plus(g1, g2), th__over(th__times(th__py(3), th__minus(f1, f2)), th__minus(x1, x2)));
    th__number square = th__minus(th__times(d1, d1), th__times(g1, g2));
    if (!th__less_equal(th__py(0), square)) return th__over(th__plus(low, high), th__py(2.0));
    th__number d2 = th__square_root(square), at;
    if (ordered) {
        th__number share = th__over(th__minus(th__plus(g2, d2), d1), th__plus(th__minus(g2, g1), th__times(th__py(2), d2)));
        at = th__minus(x2, th__times(th__minus(x2, x1), share));
    } else {
        th__number share = th__over(th__minus(th__plus(g1, d2), d1), th__plus(th__minus(g1, g2), th__times(th__py(2), d2)));
        at = th__minus(x1, th__times(th__minus(x1, x2), share));
    }
    return th__min(th__max(at, low), high);
}

typedef struct searching {
    th_optimizer *self;
    th__search *out;
    th_tensor **start; /* copies of the parameters */
    size_t n;
    point now, previous, bracket[2];
    size_t n_bracket;
    th__number f, gtd; /* at the start */
    th__number peak;   /* largest magnitude of d */
    int64_t iterations;
    bool done;
} searching;

/* Loss, gradient and slope at a step; the parameters go back afterwards. */
static void evaluate(searching *s, th__number t)
{
    TH_SCOPE();
    th__lbfgs_move(s->self, t.v, s->out->d);
    double loss = th__lbfgs_evaluate(s->self);
    th_tensor *grad = th__lbfgs_flat_grad(s->self);
    for (size_t i = 0; i < s->n; i++) th_copy_(s->self->groups[0].params[i].tensor, s->start[i]);
    if (th__pending() == TH_OK) set_point(&s->now, t, th__py(loss), grad, th__lbfgs_dot(s->self, grad, s->out->d));
    s->out->evaluations++;
}

static bool sufficient_decrease(const searching *s)
{
    th__number bound = th__plus(s->f, th__times(th__times(th__py(1e-4), s->now.t), s->gtd));
    return !th__less(bound, s->now.f);
}

static bool flat_enough(const searching *s) { return th__less_equal(th__absolute(s->now.gtd), th__times(th__py(-0.9), s->gtd)); }

static void take_bracket(searching *s, bool both)
{
    s->n_bracket = both ? 2 : 1;
    copy_point(&s->bracket[0], both ? &s->previous : &s->now);
    if (both) copy_point(&s->bracket[1], &s->now);
}

/* Moves out until two points enclose an acceptable one, or one is acceptable. */
static void find_bracket(searching *s, const point *origin, int64_t max_ls)
{
    copy_point(&s->previous, origin);
    while (s->iterations < max_ls && th__pending() == TH_OK) {
        if (!sufficient_decrease(s) || (s->iterations > 1 && th__less_equal(s->previous.f, s->now.f))) {
            take_bracket(s, true);
            return;
        }
        if (flat_enough(s)) {
            take_bracket(s, false);
            s->done = true;
            return;
        }
        if (th__less_equal(th__py(0), s->now.gtd)) {
            take_bracket(s, true);
            return;
        }
        th__number t = s->now.t;
        th__number low = th__plus(t, th__times(th__py(0.01), th__minus(t, s->previous.t))), high = th__times(t, th__py(10));
        t = cubic(&s->previous, &s->now, true, low, high);
        copy_point(&s->previous, &s->now);
        evaluate(s, t);
        s->iterations++;
    }
    copy_point(&s->previous, origin);
    s->previous.t = th__py(0);
    take_bracket(s, true);
}

/* A trial that is too close to an end is moved a tenth of the way in, at the second time or when it is on the end. */
static th__number keep_off_ends(const searching *s, th__number t, bool *insufficient)
{
    th__number high = th__max(s->bracket[0].t, s->bracket[1].t), low = th__min(s->bracket[0].t, s->bracket[1].t);
    th__number margin = th__times(th__py(0.1), th__minus(high, low));
    if (!th__less(th__min(th__minus(high, t), th__minus(t, low)), margin)) {
        *insufficient = false;
        return t;
    }
    if (!*insufficient && !th__less_equal(high, t) && !th__less_equal(t, low)) {
        *insufficient = true;
        return t;
    }
    *insufficient = false;
    bool nearer_high = th__less(th__absolute(th__minus(t, high)), th__absolute(th__minus(t, low)));
    return nearer_high ? th__minus(high, margin) : th__plus(low, margin);
}

static size_t lower(const searching *s) { return th__less_equal(s->bracket[0].f, s->bracket[s->n_bracket - 1].f) ? 0 : 1; }

/* Narrows the bracket; returns the index of its lower end. */
static size_t zoom(searching *s, double tolerance_change, int64_t max_ls)
{
    size_t low = lower(s);
    bool insufficient = false;
    while (!s->done && s->iterations < max_ls && th__pending() == TH_OK) {
        size_t high = 1 - low;
        th__number width = th__absolute(th__minus(s->bracket[1].t, s->bracket[0].t));
        if (th__less(th__times(width, s->peak), th__py(tolerance_change))) break;
        th__number t = cubic(&s->bracket[0], &s->bracket[1], false, th__py(0), th__py(0));
        evaluate(s, keep_off_ends(s, t, &insufficient));
        s->iterations++;
        if (!sufficient_decrease(s) || th__less_equal(s->bracket[low].f, s->now.f)) {
            copy_point(&s->bracket[high], &s->now);
            low = lower(s);
            continue;
        }
        th__number across = th__times(s->now.gtd, th__minus(s->bracket[high].t, s->bracket[low].t));
        if (flat_enough(s))
            s->done = true;
        else if (th__less_equal(th__py(0), across))
            copy_point(&s->bracket[high], &s->bracket[low]);
        copy_point(&s->bracket[low], &s->now);
    }
    return s->n_bracket == 1 ? 0 : low;
}

static bool keep_start(searching *s)
{
    const th__group *group = &s->self->groups[0];
    s->start = th__calloc(group->n, sizeof *s->start);
    if (s->start == NULL) return false;
    for (s->n = 0; s->n < group->n; s->n++) {
        s->start[s->n] = th_keep(th_clone(group->params[s->n].tensor, .memory_format = TH_CONTIGUOUS_FORMAT));
        if (s->start[s->n] == NULL) return false;
    }
    return true;
}

th_status th__lbfgs_search(th_optimizer *self, th__search *search, double tolerance_change, int64_t max_ls)
{
    searching s = {.self = self, .out = search, .f = search->f, .gtd = search->gtd};
    point origin = {th__py(0), search->f, search->gtd, search->g};
    search->evaluations = 0;
    if (keep_start(&s)) {
        s.peak = th__lbfgs_peak(self, search->d);
        evaluate(&s, search->t);
        find_bracket(&s, &origin, max_ls);
        size_t low = th__pending() == TH_OK ? zoom(&s, tolerance_change, max_ls) : 0;
        if (th__pending() == TH_OK) {
            search->t = s.bracket[low].t;
            search->f = s.bracket[low].f;
            search->g = th_retain(s.bracket[low].g);
        }
    }
    for (size_t i = 0; s.start != NULL && i < s.n; i++) th_free(s.start[i]);
    free(s.start);
    th_free(s.now.g);
    th_free(s.previous.g);
    th_free(s.bracket[0].g);
    th_free(s.bracket[1].g);
    return th__pending();
}
