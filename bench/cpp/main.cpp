// bench/cpp/main.cpp: the same loops as a C++ programmer writes them on libtorch by hand; what cfabric is measured against.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

static void loop(const std::function<void()> &step, int warmup, int steps)
{
    const int blocks = 10, per_block = std::max(1, steps / blocks);
    std::vector<double> seconds;
    for (int i = 0; i < warmup; i++) step();
    for (int b = 0; b < blocks; b++) {
        double start = now();
        for (int k = 0; k < per_block; k++) step();
        seconds.push_back((now() - start) / per_block);
    }
    std::sort(seconds.begin(), seconds.end());
    std::printf("seconds_per_step %.9f\n", (seconds[blocks / 2 - 1] + seconds[blocks / 2]) / 2);
}

static at::Tensor parameter(at::IntArrayRef sizes, int64_t fan_in)
{
    double bound = 1 / std::sqrt(static_cast<double>(fan_in));
    return at::empty(sizes).uniform_(-bound, bound).requires_grad_(true);
}

static void zero_grad(std::vector<at::Tensor> &params)
{
    for (auto &p : params) p.mutable_grad().reset();
}

static void mlp(int batch, int steps)
{
    std::vector<at::Tensor> p{parameter({128, 784}, 784), parameter({128}, 784), parameter({10, 128}, 128), parameter({10}, 128)};
    auto x = at::randn({batch, 784}), y = at::randint(10, {batch}, at::kLong);
    loop(
        [&] {
            zero_grad(p);
            auto hidden = at::relu(at::linear(x, p[0], p[1]));
            auto loss = at::cross_entropy_loss(at::linear(hidden, p[2], p[3]), y);
            loss.backward();
            c10::AutoGradMode guard(false);
            for (auto &w : p) w.add_(w.grad(), -0.01);
        },
        100, steps);
}

static void image(int batch, int steps)
{
    std::vector<at::Tensor> p{parameter({32, 1, 3, 3}, 9), parameter({32}, 9),           parameter({64, 32, 3, 3}, 288),
                              parameter({64}, 288),        parameter({128, 9216}, 9216), parameter({128}, 9216),
                              parameter({10, 128}, 128),   parameter({10}, 128)};
    std::vector<at::Tensor> square, delta;
    for (auto &w : p) {
        square.push_back(at::zeros_like(w));
        delta.push_back(at::zeros_like(w));
    }
    auto x = at::randn({batch, 1, 28, 28}), y = at::randint(10, {batch}, at::kLong);
    const double rho = 0.9, eps = 1e-6, lr = 1.0;
    loop(
        [&] {
            zero_grad(p);
            auto h = at::relu(at::conv2d(x, p[0], p[1]));
            h = at::relu(at::conv2d(h, p[2], p[3]));
            h = at::dropout(at::max_pool2d(h, 2), 0.25, true).flatten(1);
            h = at::dropout(at::relu(at::linear(h, p[4], p[5])), 0.5, true);
            auto loss = at::nll_loss(at::log_softmax(at::linear(h, p[6], p[7]), 1), y);
            loss.backward();
            c10::AutoGradMode guard(false);
            for (size_t i = 0; i < p.size(); i++) { // Adadelta
                auto grad = p[i].grad();
                square[i].mul_(rho).addcmul_(grad, grad, 1 - rho);
                auto deviation = square[i].add(eps).sqrt_();
                auto change = delta[i].add(eps).sqrt_().div_(deviation).mul_(grad);
                delta[i].mul_(rho).addcmul_(change, change, 1 - rho);
                p[i].add_(change, -lr);
            }
        },
        3, steps);
}

static void op_call(int steps)
{
    auto x = at::ones({1}), y = at::ones({1});
    double best = 1e9;
    for (int round = 0; round < 7; round++) {
        double start = now();
        for (int i = 0; i < steps; i++) auto z = at::add(x, y);
        best = std::min(best, (now() - start) / steps);
    }
    std::printf("seconds_per_call %.12f\n", best);
}

int main(int argc, char **argv)
{
    std::string command = argc > 1 ? argv[1] : "";
    int batch = 32, steps = 200;
    for (int i = 2; i < argc; i++) {
        if (std::strncmp(argv[i], "batch=", 6) == 0) batch = std::atoi(argv[i] + 6);
        if (std::strncmp(argv[i], "steps=", 6) == 0) steps = std::atoi(argv[i] + 6);
    }
    if (command == "mlp")
        mlp(batch, steps);
    else if (command == "image")
        image(batch, steps);
    else if (command == "op_call")
        op_call(steps);
    else
        return 2;
    return 0;
}
