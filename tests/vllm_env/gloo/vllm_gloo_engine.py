"""The server's side of the stand-in: vLLM's own engine for NCCL, with another group."""

import torch
from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine
from vllm_gloo import GlooGroup


class GlooWeightTransferEngine(NCCLWeightTransferEngine):
    def init_transfer_engine(self, init_info):
        config = self.parallel_config
        rank = config.data_parallel_index * config.world_size + config.rank + init_info.rank_offset
        self.model_update_group = GlooGroup(
            init_info.master_address, init_info.master_port, rank, init_info.world_size
        )

    def receive_weights(self, update_info):
        for name, dtype, shape in zip(update_info.names, update_info.dtype_names, update_info.shapes, strict=True):
            weight = torch.empty(shape, dtype=getattr(torch, dtype), device=self.device)
            self.model_update_group.broadcast(weight, src=0)
            self.model.load_weights([(name, weight)])
