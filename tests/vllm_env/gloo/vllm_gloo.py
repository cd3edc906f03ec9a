"""A stand-in, for tests alone: gloo in the place of NCCL, so that weights reach a vLLM server on CPUs.

Only the collective is replaced. Every HTTP call and its order, the rendezvous, the names and shapes that are
announced, and vLLM's loading of what it receives are the real code of TRL and vLLM.
"""

from datetime import timedelta
from types import SimpleNamespace


class GlooGroup:
    """What TRL and vLLM use of an NCCL communicator: `broadcast`, and two attributes that are dropped at the end."""

    def __init__(self, host, port, rank, world_size):
        import torch.distributed as dist

        limit = timedelta(seconds=60)
        store = dist.TCPStore(host, port, world_size, is_master=rank == 0, timeout=limit)
        self.process_group = dist.ProcessGroupGloo(dist.PrefixStore("vllm_gloo", store), rank, world_size, limit)
        self.group = SimpleNamespace(store=store, socket=None)

    def broadcast(self, tensor, src=0, stream=None):
        import torch.distributed as dist

        options = dist.BroadcastOptions()
        options.rootRank = src
        self.process_group.broadcast([tensor], options).wait()


def register():
    """Entry point of vLLM's plugins: `--weight-transfer-config '{"backend": "gloo"}'`."""
    import vllm._custom_ops as ops
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    if "gloo" not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine("gloo", "vllm_gloo_engine", "GlooWeightTransferEngine")
    # The CPU build packs linear weights for oneDNN and forgets the originals: with tied embeddings a head that was
    # sent would stay stale.
    ops._supports_onednn = False


def use_gloo_in_trl():
    """The trainer's side, to be called before the trainer is built."""
    import torch
    from trl.generation import vllm_client

    def open_trainer_endpoint(init_info, rank=0):
        return GlooGroup(init_info["master_address"], init_info["master_port"], rank, init_info["world_size"])

    def send(iterator, group, src, post_iter_func, **_):
        for item in iterator:
            group.broadcast(post_iter_func(item).detach().cpu().contiguous(), src=src)

    vllm_client.open_trainer_endpoint = open_trainer_endpoint
    vllm_client.packed_nccl_broadcast_producer = send
    original = vllm_client.VLLMClient.init_communicator
    # TRL refuses a device that is not CUDA; one without an index makes no call of CUDA.
    vllm_client.VLLMClient.init_communicator = lambda self, device=0: original(self, device=torch.device("cuda"))
