// bridge/graph.cpp: which leaves a set of outputs depends on.
#include "bridge/guard.hpp"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <unordered_map>
#include <unordered_set>

extern "C" th_status th__graph_reaches(th_tensors outputs, th_tensors leaves, bool *reached)
{
    BRIDGE_STATUS({
        using torch::autograd::Node;
        std::unordered_map<Node *, size_t> wanted;
        std::unordered_set<Node *> seen;
        std::vector<Node *> todo;
        for (size_t i = 0; i < leaves.size; i++) {
            auto accumulator = torch::autograd::impl::try_get_grad_accumulator(bridge::unwrap(leaves.data[i]));
            if (accumulator) wanted.emplace(accumulator.get(), i);
        }
        auto visit = [&](Node *node) {
            if (node != nullptr && seen.insert(node).second) todo.push_back(node);
        };
        for (size_t i = 0; i < outputs.size; i++) {
            if (outputs.data[i] == nullptr) continue;
            const auto edge = torch::autograd::impl::gradient_edge(bridge::unwrap(outputs.data[i]));
            visit(edge.function.get());
        }
        while (!todo.empty()) {
            Node *node = todo.back();
            todo.pop_back();
            auto hit = wanted.find(node);
            if (hit != wanted.end()) reached[hit->second] = true;
            for (const auto &edge : node->next_edges()) visit(edge.function.get());
        }
    });
}
