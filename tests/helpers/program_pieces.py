"""Pieces of Python that updates are put together from, and the programs made of them.

A program is text: the module that a user might write. It has a learner, `make_learner()`, an update
with the decorator `recorded`, and `between(learner, batch, i)`, what a user does before the i-th
call. `test_captured_updates_equal_eager_ones.py` runs such programs.
"""

import random
import re
from dataclasses import dataclass, field


@dataclass
class Ingredient:
    """What one ingredient adds to a program, as text.

    term: an expression whose mean is added to the loss; x (rows, 4), y (rows), n (rows, integers
        below 6) and image (rows, 8, 8, 3, bytes) are columns of the batch, h (rows, 6) is what the
        network gives
    lines: statements of the update; they may change `loss`
    fields: attributes of the learner, by their names
    top: statements at the top of the module
    made: statements of make_learner, in which `learner` exists
    between: statements before each call but the first; batch and settings may be changed
    settings: what the update is called with, at first
    optimizer: an expression that makes the optimizer of `params`
    step: statements that do the gradient step on `loss`
    captured: whether such an update must be captured, not only be right
    """

    term: str = ""
    lines: str = ""
    fields: dict = field(default_factory=dict)
    top: str = ""
    made: str = ""
    between: str = ""
    settings: str = ""
    optimizer: str = ""
    step: str = ""
    captured: bool = False


PLAIN_TERMS = {
    # one tensor
    "abs": "h.abs()",
    "neg": "-h",
    "exp": "torch.exp(0.1 * h)",
    "expm1": "torch.expm1(0.1 * h)",
    "log": "torch.log(h.abs() + 0.5)",
    "log1p": "torch.log1p(h.square())",
    "sqrt": "torch.sqrt(h.square() + 0.1)",
    "rsqrt": "torch.rsqrt(h.square() + 0.5)",
    "square": "h.square()",
    "cube": "(0.5 * h) ** 3",
    "reciprocal": "1 / (h.square() + 1)",
    "sin": "torch.sin(h)",
    "cos": "torch.cos(h)",
    "tanh": "torch.tanh(h)",
    "sigmoid": "torch.sigmoid(h)",
    "erf": "torch.erf(h)",
    "sign": "torch.sign(h) * h",
    "relu": "F.relu(h)",
    "leaky relu": "F.leaky_relu(h, 0.2)",
    "silu": "F.silu(h)",
    "softplus": "F.softplus(h)",
    "clamp": "h.clamp(-0.3, 0.4)",
    "clamp by tensors": "torch.clamp(h, x[:, :1] - 0.5, x[:, 1:2].abs())",
    "detach": "h.detach() * h",
    # two tensors
    "add with alpha": "torch.add(h[:, :4], x, alpha=0.3)",
    "sub": "h[:, :4] - x",
    "mul by a column": "h * y[:, None]",
    "div": "h / (1 + y[:, None].square())",
    "maximum": "torch.maximum(h[:, :4], x)",
    "minimum": "torch.minimum(h[:, :4], x)",
    "pow of tensors": "(h.square() + 0.5) ** x[:, :1]",
    "lerp": "torch.lerp(h[:, :4], x, 0.3)",
    "addcmul": "torch.addcmul(y[:, None], h[:, :4], x, value=0.5)",
    "where": "torch.where(x > 0, h[:, :4], 0.1 * x)",
    "masked fill": "h.masked_fill(h > 0.2, 0.0)",
    "bool mask times": "(x > 0).float() * h[:, :4]",
    "logical": "((x > 0) & ~(x > 1) | (x < -1)).float() * h[:, :4]",
    # reductions
    "sum over rows": "h.sum(0)",
    "sum kept": "h - h.sum(-1, keepdim=True)",
    "mean over actions": "h - h.mean(-1, keepdim=True)",
    "mean in double": "h.mean(dtype=torch.float64).float()",
    "amax of all": "torch.amax(h)",
    "amax of rows": "h.amax(-1)",
    "amin of rows": "h.amin(-1)",
    "max with indices": "h.max(-1).values",
    "norm of rows": "h.norm(dim=-1)",
    "norm of all": "h.norm() / 10",
    "vector norm": "torch.linalg.vector_norm(h, dim=0)",
    "std": "h.std(-1)",
    "var, biased": "h.var(0, unbiased=False)",
    "standardised": "(h - h.mean()) / (h.std() + 1e-3)",
    "logsumexp": "torch.logsumexp(h, -1)",
    "softmax": "F.softmax(h, -1).square()",
    "log softmax": "F.log_softmax(h, -1)",
    "cumsum": "torch.cumsum(h, -1)",
    "argmax": "h.argmax(-1).float()",
    # products
    "matmul": "h @ h.T / 10",
    "matmul of a transposed": "h.T @ x / 10",
    "matmul of an expanded": "y.expand(6, -1) @ h / 10",
    "einsum": "torch.einsum('ni,nj->ij', h, x) / 10",
    "einsum of rows": "torch.einsum('ni,ni->n', h[:, :4], x)",
    "bmm": "torch.bmm(h.unsqueeze(1), h.unsqueeze(2))",
    "matrix times vector": "h.T @ y / 10",
    "outer": "torch.outer(h[:, 0], y) / 10",
    "dot": "torch.dot(h[:, 0], y) / 10",
    "batched matmul": "torch.stack([h, 2 * h]) @ h.T / 10",
    "addmm": "torch.addmm(h[:6, :6], h.T, h, beta=0.5, alpha=0.1)",
    # shapes
    "transposed": "h.T.reshape(-1, 2)[:, 0]",
    "expanded": "h[:, :1].expand(-1, 5) * h[:, 1:]",
    "permuted": "h.reshape(-1, 2, 3).permute(2, 0, 1).contiguous().square()",
    "cat": "torch.cat([h, x], -1)",
    "stack": "torch.stack([h[:, 0], y])",
    "chunk": "h.chunk(2, -1)[0] * h.chunk(2, -1)[1]",
    "split": "h.split([1, 5], -1)[1].exp()",
    "unbind": "h.unbind(-1)[2] * h.unbind(-1)[3]",
    "slices": "h[:, ::2] * h[:, 1::2]",
    # indices
    "gather": "h.gather(-1, n[:, None]).squeeze(-1)",
    # integers
    "integer arithmetic": "(n * 3 + 1) % 5 * h[:, 0]",
    "integer division": "(n // 2) * h[:, 0]",
    "integer sum": "n.sum() * h[:, 0] / 50",
    # random numbers of PyTorch's
    "randn like": "h + 0.1 * torch.randn_like(h)",
    "rand": "h * torch.rand(h.shape[0], 1)",
    "dropout": "F.dropout(h, 0.3)",
    # losses
    "mse": "F.mse_loss(h[:, 0], y)",
    "huber": "F.huber_loss(3 * h[:, 0], y)",
    "smooth l1": "F.smooth_l1_loss(3 * h[:, 0], y)",
    "cross entropy": "F.cross_entropy(h, n)",
    "binary cross entropy": "F.binary_cross_entropy_with_logits(h[:, 0], (y > 0).float())",
    # at extremes
    "sigmoid at -20": "torch.log(torch.sigmoid(0.1 * h - 20))",
    "sigmoid at 88": "torch.sigmoid(h + 88)",
    "softplus at 88": "F.softplus(h + 88)",
    "softplus at -20": "torch.log(F.softplus(0.1 * h - 20))",
    "tanh at 88": "torch.tanh(h * 88)",
    "log sigmoid at -88": "F.logsigmoid(h - 88) / 88",
    "elu at -20": "F.elu(h - 20) * h",
    "gelu at -20": "F.gelu(h - 20) + F.gelu(h + 88) / 88",
    "mish": "F.mish(h)",
}
OTHER_TERMS = {
    "index select": "h.index_select(-1, torch.tensor([0, 3, 3]))",
    "one hot": "F.one_hot(n, 6) * h",
    "categorical": "Categorical(logits=h).log_prob(n)",
    "gaussian": "Normal(h[:, :4], 0.7, validate_args=False).log_prob(x)",
    "floor": "torch.floor(h * 3) + h",
    "remainder": "torch.remainder(h, 0.7)",
    "atan2": "torch.atan2(h[:, :4], x.abs() + 1)",
    "prod": "h.prod(-1)",
    "median": "h.median(-1).values",
    "cumprod": "torch.cumprod(1 + 0.1 * h, -1)",
    "logcumsumexp": "torch.logcumsumexp(h, -1)",
    "var and mean": "torch.var_mean(h, -1)[0]",
    "tensordot": "torch.tensordot(h, h, ([0], [0])) / 10",
    "cdist": "torch.cdist(h[:4], 1 + h[4:8])",
    "flip": "h.flip(-1) * h",
    "roll": "h.roll(1, 0) * h",
    "pad": "F.pad(h, (1, 2), value=0.3).square()",
    "repeat": "h.repeat(2, 1).square()",
    "tril": "torch.tril(h.T @ h) / 10",
    "diagonal": "(h.T @ h).diagonal() / 10",
    "sort": "h.sort(-1).values * torch.arange(6.0)",
    "topk": "h.topk(2, -1).values",
    "argsort and gather": "h.gather(0, x[:, :1].argsort(0).expand(-1, 6)).cumsum(0) / 10",
    "scatter add": "torch.zeros(6).scatter_add(0, n, h[:, 0])",
    "index add": "torch.zeros(6, 6).index_add(0, n, h)",
    "take along": "torch.take_along_dim(h, n[:, None], -1)",
    "rows by mask": "h[y > 0].square().sum() / 10",
    "nonzero": "h[torch.nonzero(y > 0)[:, 0]].square().sum() / 10",
    "bits": "((n & 3) ^ 1) * h[:, 0]",
    "double": "(h.double() ** 2).float()",
    "bernoulli": "h * torch.bernoulli(torch.sigmoid(x[:, :1]))",
    "randint": "h * torch.randint(3, (h.shape[0], 1))",
    "randperm": "h[torch.randperm(h.shape[0])] * x[:, :1]",
    "multinomial": "h.gather(-1, torch.multinomial(F.softmax(h.detach(), -1), 1))",
    "a sampled action": "Categorical(logits=h).log_prob(Categorical(logits=h).sample())",
    "own generator": "h * torch.randn(1, generator=torch.Generator().manual_seed(3))",
    "kl divergence": "F.kl_div(F.log_softmax(h, -1), F.softmax(2 * h.detach(), -1), "
    "reduction='batchmean')",
    "cosine": "F.cosine_similarity(h[:, :4], x)",
    "gaussian nll": "F.gaussian_nll_loss(h[:, 0], y, h[:, 1].square() + 0.1)",
    "binary cross entropy of probabilities": "F.binary_cross_entropy(torch.sigmoid(h[:, 0]), "
    "(y > 0).float())",
    "gradient penalty": "torch.autograd.grad(h.square().sum(), h, create_graph=True)[0].square()",
    "a penalty on the parameters' gradient": "sum(g.square().sum() for g in torch.autograd.grad("
    "h.square().mean(), [p for p in learner.net.parameters() if p.requires_grad], "
    "create_graph=True))",
    "unfold": "h.unfold(-1, 3, 1).amax(-1)",
    "solve": "torch.linalg.solve(h.T @ h / 10 + 3 * torch.eye(6), x.new_ones(6))",
    "complex": "torch.fft.rfft(h).abs()",
}

LAYERS = {  # how it is made, and what is asked of it
    "our mlp, tanh": ("mlp([4, 8, 6], nn.Tanh)", "learner.A(x)"),
    "our mlp, relu": ("mlp([6, 8, 8, 1], nn.ReLU)", "learner.A(h)"),
    "our mlp, elu": ("mlp([4, 8, 6], nn.ELU, nn.Tanh)", "learner.A(x)"),
    "our mlp, gelu": ("mlp([4, 8, 6], nn.GELU)", "learner.A(10 * x)"),
    "our mlp, softplus": ("mlp([4, 8, 6], nn.Softplus)", "learner.A(10 * x)"),
    "our mlp, sigmoid": ("mlp([4, 8, 6], nn.Sigmoid)", "learner.A(10 * x)"),
    "our Gaussian actor": (
        "MLPGaussianActor(4, 2, (8,), nn.Tanh)",
        "learner.A(x, h[:, :2].detach())[1]",
    ),
    "our categorical actor": ("MLPCategoricalActor(4, 6, (8,), nn.Tanh)", "learner.A(x, n)[1]"),
    "our squashed actor": (
        "SquashedGaussianMLPActor(4, 2, (8,), nn.ReLU, np.ones(2))",
        "sum(t.mean() for t in learner.A(x))",
    ),
    "our critic": ("MLPQFunction(4, 6, (8,), nn.ReLU)", "learner.A(x, h)"),
    "a layer of PyTorch's": ("nn.Linear(6, 3)", "learner.A(h)"),
    "layers of PyTorch's": (
        "nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(), nn.Linear(8, 2))",
        "learner.A(x)",
    ),
    "a bilinear layer": ("nn.Bilinear(4, 6, 3)", "learner.A(x, h)"),
    "conv, channels last": (
        "nn.Conv2d(3, 4, 3, stride=2)",
        "learner.A(image.permute(0, 3, 1, 2) / 255).square()",
    ),
    "conv net, channels last": (
        "nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2), nn.Flatten(), "
        "nn.Linear(16, 2))",
        "learner.A((image.float() / 255).permute(0, 3, 1, 2))",
    ),
    "conv and pooling": (
        "nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1))",
        "learner.A(image.movedim(-1, 1) / 255)",
    ),
    "conv in one dimension": ("nn.Conv1d(2, 3, 2)", "learner.A(h.reshape(-1, 2, 3))"),
    "gru": ("nn.GRU(2, 5, batch_first=True)", "learner.A(h.reshape(-1, 3, 2))[0]"),
    "lstm": ("nn.LSTM(2, 5)", "learner.A(h.reshape(3, -1, 2))[1][0]"),
    "a cell step by step": ("nn.GRUCell(3, 4)", "learner.A(h[:, 3:], learner.A(h[:, :3]))"),
    "layer norm": ("nn.LayerNorm(6)", "learner.A(h).square()"),
    "group norm": ("nn.GroupNorm(2, 6)", "learner.A(h).square()"),
    "batch norm": ("nn.BatchNorm1d(6)", "learner.A(h).exp()"),
    "batch norm, evaluating": ("nn.BatchNorm1d(6).eval()", "learner.A(h).exp()"),
    "batch norm of images": ("nn.BatchNorm2d(3)", "learner.A(image.permute(0, 3, 1, 2) / 1.0)"),
    "embedding": ("nn.Embedding(6, 6)", "learner.A(n) * h"),
    "dropout layer": ("nn.Dropout(0.4)", "learner.A(h)"),
    "dropout layer, evaluating": ("nn.Dropout(0.4).eval()", "learner.A(h)"),
    "prelu": ("nn.PReLU()", "learner.A(h)"),
    "spectral norm": ("nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4))", "learner.A(h)"),
    "weight norm": ("nn.utils.parametrizations.weight_norm(nn.Linear(6, 4))", "learner.A(h)"),
    "attention": (
        "nn.MultiheadAttention(6, 2, batch_first=True)",
        "learner.A(h.unsqueeze(1), h.unsqueeze(1).expand(-1, 2, -1), x[:, :1, None] * "
        "h.unsqueeze(1).expand(-1, 2, -1))[0]",
    ),
    "a parameter alone": ("nn.Parameter(torch.full((6,), 0.3))", "learner.A * h"),
    "one layer twice": ("nn.Linear(6, 6)", "learner.A(torch.tanh(learner.A(h)))"),
}
CAPTURED_LAYERS = {
    "our mlp, tanh",
    "our mlp, relu",
    "our mlp, elu",
    "our Gaussian actor",
    "our critic",
    "our squashed actor",
    "a layer of PyTorch's",
    "conv, channels last",
}

OWN_MODULES = '''
class Counting(nn.Module):
    """Does something new at every call."""

    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(6, 3), 0

    def forward(self, h):
        self.calls += 1
        return self.layer(h) * (1 + self.calls % 3)


class Scaled(nn.Module):
    """Depends on plain values of its own."""

    def __init__(self):
        super().__init__()
        self.layer, self.gain, self.inverted = nn.Linear(6, 3), 1.0, False

    def forward(self, h):
        return self.layer(h) * (-self.gain if self.inverted else self.gain)
'''
BACKWARD = "learner.optimizer.zero_grad()\nloss.backward()\nlearner.optimizer.step()"
OURS = "Adam(params, 1e-2, eps=1e-3)"
TORCH_ADAM = "torch.optim.Adam(params, 1e-2, eps=1e-3)"
# An update has one of these.
STEPS = {
    "our Adam": Ingredient(optimizer=OURS, captured=True),
    "our Adam with PyTorch's eps": Ingredient(optimizer="Adam(params, 1e-3)", captured=True),
    "our Adam, other betas": Ingredient(optimizer="Adam(params, 1e-2, (0.5, 0.9), 1e-3)"),
    "clipped": Ingredient(
        optimizer=OURS,
        captured=True,
        step="gradient_step(learner.optimizer, loss, max_grad_norm=0.05)",
    ),
    "clipped far away": Ingredient(
        optimizer=OURS,
        step="gradient_step(learner.optimizer, loss, max_grad_norm=1e4)",
    ),
    "our step with PyTorch's Adam": Ingredient(optimizer=TORCH_ADAM),
    "PyTorch's Adam": Ingredient(optimizer=TORCH_ADAM, step=BACKWARD),
    "amsgrad": Ingredient(
        optimizer="torch.optim.Adam(params, 1e-2, eps=1e-3, amsgrad=True, weight_decay=0.1)",
        step=BACKWARD,
    ),
    "fused Adam": Ingredient(
        optimizer="torch.optim.Adam(params, 1e-2, eps=1e-3, fused=True)", step=BACKWARD
    ),
    "AdamW": Ingredient(optimizer="torch.optim.AdamW(params, 1e-2, eps=1e-3)", step=BACKWARD),
    "SGD": Ingredient(optimizer="torch.optim.SGD(params, 0.05)", step=BACKWARD),
    "SGD with momentum": Ingredient(
        optimizer="torch.optim.SGD(params, 0.05, momentum=0.9, nesterov=True)", step=BACKWARD
    ),
    "RMSprop": Ingredient(optimizer="torch.optim.RMSprop(params, 1e-3, eps=1e-3)", step=BACKWARD),
    "Adagrad": Ingredient(optimizer="torch.optim.Adagrad(params, 1e-2, eps=1e-3)", step=BACKWARD),
    "two groups": Ingredient(
        optimizer="torch.optim.Adam([dict(params=params[:1], lr=1e-3), dict(params=params[1:])], "
        "1e-2, eps=1e-3)",
        step=BACKWARD,
    ),
    "accumulated over two calls": Ingredient(
        optimizer=OURS,
        fields=dict(accumulated="0"),
        step="""
loss.backward()
learner.accumulated += 1
if learner.accumulated % 2 == 0:
    learner.optimizer.step()
    for p in learner.optimizer.param_groups[0]["params"]:
        p.grad = None
""",
    ),
    "accumulated without end": Ingredient(
        optimizer=OURS, step="loss.backward()\nlearner.optimizer.step()"
    ),
    "PyTorch's clipping": Ingredient(
        optimizer=TORCH_ADAM,
        step="""
learner.optimizer.zero_grad(set_to_none=False)
loss.backward()
stats["norm"] = nn.utils.clip_grad_norm_(learner.net.parameters(), 0.05)
learner.optimizer.step()
""",
    ),
    "clipping of each number": Ingredient(
        optimizer="torch.optim.SGD(params, 0.05)",
        step="""
learner.optimizer.zero_grad()
loss.backward()
nn.utils.clip_grad_value_(learner.net.parameters(), 0.01)
learner.optimizer.step()
""",
    ),
    "PyTorch's scheduler": Ingredient(
        optimizer=TORCH_ADAM,
        made="learner.scheduler = torch.optim.lr_scheduler.ExponentialLR(learner.optimizer, 0.8)",
        fields=dict(scheduler="None"),
        step=BACKWARD + "\nlearner.scheduler.step()",
    ),
    "by hand": Ingredient(
        optimizer=OURS,
        step="""
params = [p for p in learner.net.parameters() if p.requires_grad]
for p, g in zip(params, torch.autograd.grad(loss, params)):
    with torch.no_grad():
        p -= 0.05 * g
""",
    ),
    "two steps": Ingredient(
        optimizer=OURS,
        captured=True,
        step="""
gradient_step(learner.optimizer, loss)
loss = (learner.net(x).sum(-1) - y).square().mean()
gradient_step(learner.optimizer, loss)
""",
    ),
    "no step": Ingredient(optimizer=OURS, step="pass"),
}

INGREDIENTS = {name: Ingredient(term=term, captured=True) for name, term in PLAIN_TERMS.items()}
INGREDIENTS |= {name: Ingredient(term=term) for name, term in OTHER_TERMS.items()}
INGREDIENTS |= {
    name: Ingredient(term=asked, fields=dict(A=made), captured=name in CAPTURED_LAYERS)
    for name, (made, asked) in LAYERS.items()
}
NEW_OPTIMIZER = """\
learner.optimizer = type(learner.optimizer)(list(learner.net.parameters()), lr=0.05)
    learner.optimizer.param_groups[0]['eps'] = 1e-3"""
NEXT = "if i % 3 == 0:\n    "  # of the calls, the fourth, seventh and tenth
INGREDIENTS |= {
    # changes in place
    "in place": Ingredient(
        lines="""
z = h.clone()
z.mul_(2).add_(y[:, None]).clamp_(-1, 1)
z[:, 0] = 0.5
loss = loss + 0.1 * z.square().mean()
""",
        captured=True,
    ),
    "in-place shape": Ingredient(
        lines="""
z = h.clone()
z.unsqueeze_(0)
z.transpose_(1, 2)
z.squeeze_(0)
loss = loss + 0.1 * (z[0] * z[1]).mean()
"""
    ),
    "in-place transposition": Ingredient(
        lines="""
z = h.detach().clone()
z.t_()
loss = loss + 0.1 * (z @ h).mean()
"""
    ),
    "a resized scratch tensor": Ingredient(
        lines="""
z = torch.empty(0)
z.resize_(3).fill_(0.5)
loss = loss + 0.1 * (z * h[:, :3]).mean()
"""
    ),
    "written through a view": Ingredient(
        lines="""
z = torch.zeros(6, h.shape[0])
z.T.copy_(h.detach())
z[2].zero_()
loss = loss + 0.1 * (z.T * h).mean()
"""
    ),
    "filled with an output": Ingredient(
        lines="""
z = torch.empty(h.shape[0])
torch.sum(h.detach(), -1, out=z)
loss = loss + 0.1 * (z * h[:, 0]).mean()
"""
    ),
    "a running average on the learner": Ingredient(
        fields=dict(average="torch.zeros(6)"),
        lines="learner.average.mul_(0.9).add_(0.1 * h.detach().mean(0))\n"
        "loss = loss + 0.1 * (learner.average * h).mean()",
    ),
    "the last value kept": Ingredient(
        fields=dict(last="torch.zeros(6)"),
        lines="loss = loss + 0.1 * (learner.last * h).mean()\nlearner.last = h.detach().mean(0)",
    ),
    "a buffer of the network": Ingredient(
        made="learner.net.register_buffer('seen', torch.zeros(6))",
        lines="with torch.no_grad():\n    learner.net.seen += h.mean(0)\n"
        "loss = loss + 0.01 * (learner.net.seen * h).mean()",
    ),
    # a target network
    "polyak": Ingredient(
        fields=dict(target="None"),
        made="learner.target = deepcopy(learner.net)",
        lines="with torch.no_grad():\n    backup = 0.5 * learner.target(x).amax(-1)\n"
        "loss = loss + (h[:, 0] - backup).square().mean()\n"
        "polyak_average(learner.net, learner.target, 0.9)",
        captured=True,
    ),
    "polyak 0": Ingredient(
        fields=dict(target="None"),
        made="learner.target = deepcopy(learner.net)",
        lines="stats['before'] = learner.target(x).detach()\n"
        "polyak_average(learner.net, learner.target, 0)",
    ),
    "polyak of a setting": Ingredient(
        fields=dict(target="None"),
        made="learner.target = deepcopy(learner.net)",
        lines="polyak_average(learner.net, learner.target, settings['rho'])",
        settings="rho=0.9",
        between="settings['rho'] = 0.0 if i % 2 else 0.9",
    ),
    # plain values
    "a counter": Ingredient(
        fields=dict(updates="0"),
        lines="learner.updates += 1\nloss = loss * (2.0 if learner.updates % 3 == 0 else 1.0)",
    ),
    "a schedule on the learner": Ingredient(
        fields=dict(scale="1.0"), lines="loss = loss * learner.scale\nlearner.scale *= 0.8"
    ),
    "a float changed outside": Ingredient(
        fields=dict(scale="1.0"),
        lines="loss = loss * learner.scale",
        between=NEXT + "learner.scale *= 0.5",
    ),
    "a flag changed outside": Ingredient(
        fields=dict(flipped="False"),
        lines="loss = -loss if learner.flipped else loss",
        between=NEXT + "learner.flipped = not learner.flipped",
    ),
    "a dict on the learner": Ingredient(
        fields=dict(coefficients="dict(entropy=0.1)"),
        lines="loss = loss + learner.coefficients['entropy'] * F.softmax(h, -1).square().mean()",
        between=NEXT + "learner.coefficients['entropy'] += 1.0",
    ),
    "a list on the learner": Ingredient(
        fields=dict(weights="[1.0, 0.5]"),
        lines="loss = loss * learner.weights[-1]",
        between=NEXT + "learner.weights.append(2.0)",
    ),
    "an array on the learner": Ingredient(
        fields=dict(table="np.ones(6, np.float32)"),
        lines="loss = loss + 0.1 * (torch.from_numpy(learner.table) * h).mean()",
        between=NEXT + "learner.table += 1",
    ),
    "a function on the learner": Ingredient(
        fields=dict(squash="torch.tanh"),
        lines="loss = loss + 0.1 * learner.squash(h).mean()",
        between=NEXT + "learner.squash = torch.sin",
    ),
    "a config object": Ingredient(
        fields=dict(config="SimpleNamespace(beta=0.5, nested=SimpleNamespace(power=2))"),
        lines="loss = loss + learner.config.beta * h.abs().pow(learner.config.nested.power).mean()",
        between="if i == 3:\n    learner.config.beta = 2.0\n"
        "if i == 6:\n    learner.config.nested.power = 3",
    ),
    "a config object that the update changes": Ingredient(
        fields=dict(config="SimpleNamespace(beta=0.5)"),
        lines="learner.config.beta *= 0.9\nloss = loss * learner.config.beta",
    ),
    "a float in a module": Ingredient(
        top=OWN_MODULES,
        fields=dict(B="Scaled()"),
        term="learner.B(h)",
        between="if i == 3:\n    learner.B.gain = 3.0\nif i == 6:\n    learner.B.inverted = True",
    ),
    "a counter in a module": Ingredient(
        top=OWN_MODULES, fields=dict(B="Counting()"), term="learner.B(h)"
    ),
    "a global changed outside": Ingredient(
        top="FACTOR = 1.0",
        lines="loss = loss * FACTOR",
        between="global FACTOR\n" + NEXT + "FACTOR *= 0.5",
    ),
    "a global dict": Ingredient(
        top="FACTORS = dict(a=1.0)",
        lines="loss = loss * FACTORS['a']",
        between=NEXT + "FACTORS['a'] *= 0.5",
    ),
    "a global in a helper": Ingredient(
        top="POWER = 2\n\n\ndef penalty(h):\n    return h.abs().pow(POWER).mean()",
        lines="loss = loss + penalty(h)",
        between="global POWER\n" + NEXT + "POWER += 1",
    ),
    "a counter that is global": Ingredient(
        top="CALLS = [0]", lines="CALLS[0] += 1\nloss = loss * (1 + CALLS[0] % 3)"
    ),
    "a closure": Ingredient(
        top="""
def make_weighting():
    weight = 1.0

    def weigh(loss):
        return loss * weight

    def set_weight(value):
        nonlocal weight
        weight = value

    return weigh, set_weight


weigh, set_weight = make_weighting()
""",
        lines="loss = weigh(loss)",
        between=NEXT + "set_weight(0.1 * i)",
    ),
    "a closure that counts": Ingredient(
        top="""
def make_counter():
    count = 0

    def counted(loss):
        nonlocal count
        count += 1
        return loss * (1 + count % 3)

    return counted


counted = make_counter()
""",
        lines="loss = counted(loss)",
    ),
    "a default argument": Ingredient(
        top="def weighted(loss, weights=[1.0]):\n    weights.append(weights[-1] * 0.9)\n"
        "    return loss * weights[-1]",
        lines="loss = weighted(loss)",
    ),
    # settings
    "a setting that changes": Ingredient(
        lines="loss = loss * settings['weight']",
        settings="weight=1.0",
        between="settings['weight'] = 1.0 if i % 2 else 3.0",
    ),
    "a setting that is new each time": Ingredient(
        lines="loss = loss * settings['new_weight']",
        settings="new_weight=1.0",
        between="settings['new_weight'] = 1.0 + i",
    ),
    "a list among the settings": Ingredient(
        lines="loss = loss * settings['weights'][-1]",
        settings="weights=[1.0, 0.5]",
        between=NEXT + "settings['weights'].append(2.0)",
    ),
    "a dict among the settings": Ingredient(
        lines="loss = loss * settings['named']['a']",
        settings="named=dict(a=0.5)",
        between=NEXT + "settings['named']['a'] += 1",
    ),
    "a config object among the settings": Ingredient(
        lines="loss = loss * settings['config'].weight",
        settings="config=SimpleNamespace(weight=1.0)",
        between=NEXT + "settings['config'].weight += 1",
    ),
    "a tensor among the settings": Ingredient(
        lines="loss = loss + (settings['mask'] * h).mean()",
        settings="mask=torch.ones(6)",
        between=NEXT + "settings['mask'] = torch.rand(6)",
    ),
    "a setting that is None or a number": Ingredient(
        lines="if settings['bound'] is not None:\n    loss = loss.clamp(max=settings['bound'])",
        settings="bound=None",
        between="settings['bound'] = 0.1 if 3 < i < 7 else None",
    ),
    # what Python keeps or says
    "list of tensors": Ingredient(
        fields=dict(history="[]"), lines="learner.history.append(loss.detach())"
    ),
    "list of numbers": Ingredient(
        fields=dict(history="[]"), lines="learner.history.append(loss.item())"
    ),
    "a list that is global": Ingredient(top="SEEN = []", lines="SEEN.append(h.mean().item())"),
    "dict store": Ingredient(
        fields=dict(kept="{}"), lines="learner.kept[len(learner.kept)] = h.detach().mean(0)"
    ),
    "print": Ingredient(lines="print('an update')"),
    "print of a number": Ingredient(lines="print(f'a loss {float(loss) > 0}')"),
    "a file": Ingredient(lines="with open(LOG_FILE, 'a') as log:\n    log.write('update\\n')"),
    "a set that is global": Ingredient(top="SIZES = set()", lines="SIZES.add(len(x))"),
    # numbers of other generators
    "noise of NumPy's": Ingredient(
        lines="loss = loss + (torch.from_numpy(np.random.randn(6)).float() * h).mean()"
    ),
    "a random number of Python's": Ingredient(lines="loss = loss * (0.5 + random.random())"),
    "a generator of the learner's": Ingredient(
        fields=dict(rng="np.random.default_rng(0)"),
        lines="loss = loss * (0.5 + learner.rng.random())",
    ),
    "a generator that is global": Ingredient(
        top="RNG = np.random.default_rng(0)", lines="loss = loss * (0.5 + RNG.random())"
    ),
    "a generator of PyTorch's own": Ingredient(
        fields=dict(generator="torch.Generator().manual_seed(5)"),
        lines="loss = loss * torch.rand(1, generator=learner.generator).sum()",
    ),
    # decisions
    "item": Ingredient(lines="loss = loss * (1 + abs(loss.item()))"),
    "if": Ingredient(lines="loss = loss if h.mean() > 0 else 2 * loss"),
    "if any": Ingredient(lines="loss = 3 * loss if (y > 1.5).any() else loss"),
    "a number through NumPy": Ingredient(lines="loss = loss * (1 + float(y.numpy().std()))"),
    "a list of numbers": Ingredient(lines="loss = loss * (1 + sum(n.tolist()) % 3)"),
    "a string of a number": Ingredient(lines="loss = loss * len(f'{float(loss):.3g}')"),
    "rows in a loop": Ingredient(
        lines="for row in h[:3]:\n    loss = loss + 0.1 * row.square().mean()"
    ),
    "without gradients": Ingredient(
        lines="with torch.no_grad():\n    stats['without'] = learner.net(2 * x)", captured=True
    ),
    "an exception caught": Ingredient(
        lines="try:\n    loss = loss + torch.zeros(3) @ torch.zeros(4)\n"
        "except RuntimeError:\n    loss = loss * 0.9"
    ),
    # networks changed outside
    "learning rate": Ingredient(
        between="if i > 3:\n    learner.optimizer.param_groups[0]['lr'] *= 0.5"
    ),
    "learning rate from the start": Ingredient(
        between="learner.optimizer.param_groups[0]['lr'] *= 0.8"
    ),
    "requires_grad": Ingredient(between="next(learner.net.parameters()).requires_grad_(i % 4 < 2)"),
    "eval": Ingredient(
        fields=dict(C="nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5))"),
        term="learner.C(h)",
        between=NEXT + "learner.C.eval() if learner.C.training else learner.C.train()",
    ),
    "data assigned": Ingredient(
        between=NEXT + "p = next(learner.net.parameters())\n    p.data = 0.9 * p.data"
    ),
    "data of another layout": Ingredient(
        between="if i == 4:\n    p = next(learner.net.parameters())\n"
        "    p.data = p.data.T.contiguous().T"
    ),
    "vector_to_parameters": Ingredient(
        between=NEXT + "flat = nn.utils.parameters_to_vector(learner.net.parameters())\n"
        "    nn.utils.vector_to_parameters(0.9 * flat.detach(), learner.net.parameters())"
    ),
    "load_state_dict": Ingredient(
        between=NEXT + "state = {k: 0.9 * v for k, v in learner.net.state_dict().items()}\n"
        "    learner.net.load_state_dict(state)"
    ),
    "load_state_dict(assign=True)": Ingredient(
        between=NEXT + "state = {k: 0.9 * v for k, v in learner.net.state_dict().items()}\n"
        "    learner.net.load_state_dict(state, assign=True)\n    " + NEW_OPTIMIZER
    ),
    "weights moved in place": Ingredient(
        between="with torch.no_grad():\n    next(learner.net.parameters()).mul_(0.9)"
    ),
    "a layer replaced": Ingredient(between="if i == 4:\n    learner.net[0] = nn.Linear(4, 8)"),
    "an activation replaced": Ingredient(between="if i == 4:\n    learner.net[1] = nn.Sigmoid()"),
    "a layer put in": Ingredient(
        between="if i == 4:\n    learner.net[1] = nn.Sequential(nn.LayerNorm(8), nn.Tanh())"
    ),
    "a network replaced": Ingredient(
        between="if i == 4:\n    learner.net = mlp([4, 8, 6], nn.Tanh)\n"
        "if i == 7:\n    learner.net = nn.Linear(4, 6)\n"
        "if i in (4, 7):\n    " + NEW_OPTIMIZER,
    ),
    "an optimizer replaced": Ingredient(between="if i == 4:\n    " + NEW_OPTIMIZER),
    "an optimizer of PyTorch's put in": Ingredient(
        between="if i == 4:\n"
        "    learner.optimizer = torch.optim.SGD(learner.net.parameters(), 0.05)",
    ),
    "a hook put on": Ingredient(
        top="def double(module, inputs, output):\n    return 2 * output",
        between="if i == 4:\n    learner.net[0].register_forward_hook(double)",
    ),
    "a hook that counts": Ingredient(
        top="HOOKED = []\n\n\ndef note(module, inputs, output):\n    HOOKED.append(1)",
        made="learner.net[0].register_forward_hook(note)",
    ),
    "a hook on a gradient": Ingredient(
        top="def halve(grad):\n    return grad / 2",
        between="if i == 4:\n    next(learner.net.parameters()).register_hook(halve)",
    ),
    "gradients taken away": Ingredient(
        between=NEXT + "for p in learner.net.parameters():\n        p.grad = None"
    ),
    "moments set back": Ingredient(
        fields=dict(saved="None"),
        made="learner.saved = deepcopy(learner.optimizer.state_dict())",
        between="if i == 5:\n    learner.optimizer.load_state_dict(deepcopy(learner.saved))",
    ),
    "a forward replaced": Ingredient(
        between="if i == 4:\n    plain = type(learner.net).forward\n"
        "    learner.net.forward = lambda x, net=learner.net: 2 * plain(net, x)",
    ),
    # batches
    "a batch changed in place": Ingredient(
        top="KEPT = []",
        between="if not KEPT:\n    KEPT.append(batch)\nbatch = KEPT[0]\nbatch.x.mul_(0.9)\n"
        "batch.y.add_(0.1)",
    ),
    "the same batch twice": Ingredient(
        top="HELD = []", between="if i % 2:\n    HELD[:] = [batch]\nelif HELD:\n    batch = HELD[0]"
    ),
    "a column that is None at first": Ingredient(
        lines="if batch.extra is not None:\n    loss = loss + (batch.extra * h).mean()",
        between="if i % 4 > 1:\n    batch = batch._replace(extra=torch.ones(len(batch.x), 1) * i)",
    ),
    "other numbers of rows": Ingredient(
        between=NEXT + "batch = type(batch)(*(c if c is None else c[:10] for c in batch))"
    ),
    "a transposed column": Ingredient(
        between="if i % 3:\n    batch = batch._replace(x=batch.x.T.contiguous().T)"
    ),
    "a column of another dtype": Ingredient(
        lines="if batch.extra is not None:\n    loss = loss + (batch.extra * h).mean().float()",
        between="kind = torch.float64 if i % 2 else torch.float32\n"
        "batch = batch._replace(extra=torch.ones(len(batch.x), 1, dtype=kind))\n"
        "if i == 5:\n    batch = batch._replace(image=batch.image.float())",
    ),
    "an expanded column": Ingredient(
        between="if i == 4:\n    batch = batch._replace(y=torch.tensor(0.3).expand(len(batch.y)))"
    ),
    "a result that is the batch": Ingredient(lines="stats['y'] = batch.y\nstats['h'] = h"),
    "a tree of results": Ingredient(
        lines="stats['tree'] = [h.detach().sum(), (loss.detach(), None, 3, 'text')]"
    ),
}

_OTHER_NETWORK = ("a network replaced", "a layer put in")
_OTHER_OPTIMIZER = (
    "load_state_dict(assign=True)",
    "a network replaced",
    "an optimizer replaced",
    "an optimizer of PyTorch's put in",
)
CONFLICTS = {  # what cannot be in one program, for it would not run at all
    "polyak": _OTHER_NETWORK,
    "polyak 0": _OTHER_NETWORK,
    "polyak of a setting": _OTHER_NETWORK,
    "a buffer of the network": ("a network replaced",),
    "moments set back": _OTHER_OPTIMIZER,
}

HEADER = '''"""A program made of: {names}."""

import random
from collections import namedtuple
from copy import deepcopy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical, Normal

from spinup.parts.pytorch.fast import recorded
from spinup.parts.pytorch.layers import mlp
from spinup.parts.pytorch.learning import Adam, gradient_step, polyak_average
from spinup.parts.pytorch.bounded_policies import SquashedGaussianMLPActor
from spinup.parts.pytorch.critics import MLPQFunction
from spinup.parts.pytorch.networks import MLPCategoricalActor, MLPGaussianActor

LOG_FILE = __file__ + ".log"
'''


def indented(text) -> str:
    return "".join(f"    {line}\n" if line.strip() else "\n" for line in text.strip().splitlines())


def program(names, step="our Adam", named_tuple=False) -> str:
    """The text of a program made of ingredients, with one kind of gradient step.

    named_tuple: the learner is a NamedTuple, not a dataclass
    """
    chosen = [INGREDIENTS[name] for name in names]
    last = STEPS[step]
    fields = {}
    for index, ingredient in enumerate(chosen):  # each has attributes of its own
        fields |= {own_names(key, index): value for key, value in ingredient.fields.items()}
    fields |= last.fields
    chosen = [_with_own_names(ingredient, index) for index, ingredient in enumerate(chosen)]
    text = HEADER.format(names=", ".join([*names, step]))
    text += "\n\n".join(dict.fromkeys(i.top.strip() for i in chosen if i.top))
    text += "\n\n\n" + ("" if named_tuple else "@dataclass\n")
    text += (
        f"class Learner{'(NamedTuple)' if named_tuple else ''}:\n    net: Any\n    optimizer: Any\n"
    )
    text += "".join(f"    {key}: Any = None\n" for key in fields)
    text += "\n\ndef make_learner():\n    torch.manual_seed(0)\n    net = mlp([4, 8, 6], nn.Tanh)\n"
    text += "".join(f"    {key} = {value}\n" for key, value in fields.items())
    text += f"    owners = [net{''.join(f', {key}' for key in fields)}]\n"
    text += (
        "    params = [p for o in owners if isinstance(o, nn.Module) for p in o.parameters()]\n"
        "    params += [o for o in owners if isinstance(o, nn.Parameter)]\n"
    )
    text += f"    optimizer = {last.optimizer}\n"
    text += f"    learner = Learner(net, optimizer{''.join(f', {key}' for key in fields)})\n"
    text += "".join(indented(i.made) for i in (*chosen, last))
    text += "    return learner\n\n\n@recorded\ndef update(learner, batch, **settings):\n"
    text += (
        "    x, y, n, image = batch[:4]\n    stats, h = {}, learner.net(x)\n"
        "    loss = (h.sum(-1) - y).square().mean()\n"
    )
    for ingredient in chosen:
        text += indented(ingredient.lines)
        if ingredient.term:
            text += f"    loss = loss + 0.1 * ({ingredient.term}).float().mean()\n"
    text += indented(last.step or "gradient_step(learner.optimizer, loss)")
    text += "    stats['loss'] = loss.detach()\n    return stats\n\n\n"
    settings = ", ".join(i.settings for i in chosen if i.settings)
    text += f"SETTINGS = dict({settings})\n\n\n"
    text += "def between(learner, batch, i):\n    settings = SETTINGS\n"
    statements = [i.between for i in chosen if i.between]
    globals_ = [line for s in statements for line in s.splitlines() if line.startswith("global ")]
    text = text.replace(
        "    settings = SETTINGS\n", indented("\n".join([*globals_, "settings = SETTINGS"]))
    )
    for s in statements:
        text += indented("\n".join(l for l in s.splitlines() if not l.startswith("global ")))
    return text + "    return batch, settings\n"


def own_names(text, index) -> str:
    return f"{text}{index}"


def _with_own_names(ingredient, index) -> Ingredient:
    """The ingredient with its attributes of the learner called by names of its own."""
    changed = dict(vars(ingredient))
    for name in ("term", "lines", "made", "between"):
        for key in ingredient.fields:
            changed[name] = re.sub(
                rf"learner\.{key}\b", f"learner.{own_names(key, index)}", changed[name]
            )
    return Ingredient(**changed)


def assigns(names, step) -> bool:
    """Whether a program sets an attribute of its learner, which a NamedTuple does not allow."""
    chosen = [*(INGREDIENTS[name] for name in names), STEPS[step]]
    text = "\n".join(i.lines + "\n" + i.made + "\n" + i.between + "\n" + i.step for i in chosen)
    return re.search(r"learner\.\w+ \S?= ", text) is not None


def random_program(seed):
    """Three to eight ingredients, their kind of step included, and the program of them."""
    rng = random.Random(seed)
    step = "our Adam" if rng.random() < 0.5 else rng.choice(list(STEPS))
    pool = list(INGREDIENTS)
    if seed % 3 == 0:  # a third of all are such that must be captured
        pool = [name for name in pool if INGREDIENTS[name].captured]
        step = rng.choice([name for name in STEPS if STEPS[name].captured])
    names = rng.sample(pool, rng.randint(2, 7))
    while any(one in names and set(others) & set(names) for one, others in CONFLICTS.items()):
        names = rng.sample(pool, rng.randint(2, 7))
    named_tuple = not assigns(names, step) and rng.random() < 0.2
    return names, step, named_tuple


def must_be_captured(names, step) -> bool:
    return STEPS[step].captured and all(INGREDIENTS[name].captured for name in names)
