/* Parameters of the model with names and order of a checkpoint, for load() and save(). Shapes are [rows,
 * columns]; a vector has one dimension. These functions allocate no memory. */
#ifndef TENSORS_H
#define TENSORS_H
#include <stdio.h>
#include <string.h>
#include <trainhost/trainhost.h>

typedef struct tensor {
  char name[96];
  uint32_t rank;
  uint64_t dim[2], offset; /* offset: of the first element in the block of all parameters, in elements */
  int loaded;
} tensor;

typedef struct tensor_list {
  tensor* item; /* NULL while counting */
  uint64_t count, elements;
} tensor_list;

static void add_tensor(tensor_list* l, uint32_t layer, const char* name, uint64_t rows, uint64_t columns) {
  if (l->item != NULL) {
    tensor* t = &l->item[l->count];
    if (layer == UINT32_MAX)
      snprintf(t->name, sizeof t->name, "%s", name);
    else
      snprintf(t->name, sizeof t->name, "model.layers.%u.%s", (unsigned)layer, name);
    t->rank = columns != 0 ? 2 : 1;
    t->dim[0] = rows;
    t->dim[1] = columns;
    t->offset = l->elements;
    t->loaded = 0;
  }
  l->count++;
  l->elements += rows * (columns != 0 ? columns : 1);
}

/* Appends all tensors. H hidden size, q and kv: widths of queries and keys, I: intermediate size. */
static void list_tensors(tensor_list* l, const th_model* m) {
  uint64_t H = m->hidden, q = (uint64_t)m->heads * m->head_dim, kv = (uint64_t)m->kv_heads * m->head_dim,
           I = m->intermediate;
  uint32_t i;
  l->count = l->elements = 0;
  add_tensor(l, UINT32_MAX, "model.embed_tokens.weight", m->vocab, H);
  for (i = 0; i < m->layers; ++i) {
    add_tensor(l, i, "input_layernorm.weight", H, 0);
    add_tensor(l, i, "self_attn.q_proj.weight", q, H);
    add_tensor(l, i, "self_attn.k_proj.weight", kv, H);
    add_tensor(l, i, "self_attn.v_proj.weight", kv, H);
    if (m->flags & TH_MODEL_QKV_BIAS) {
      add_tensor(l, i, "self_attn.q_proj.bias", q, 0);
      add_tensor(l, i, "self_attn.k_proj.bias", kv, 0);
      add_tensor(l, i, "self_attn.v_proj.bias", kv, 0);
    }
    if (m->flags & TH_MODEL_QK_NORM) {
      add_tensor(l, i, "self_attn.q_norm.weight", m->head_dim, 0);
      add_tensor(l, i, "self_attn.k_norm.weight", m->head_dim, 0);
    }
    add_tensor(l, i, "self_attn.o_proj.weight", H, q);
    if (m->flags & TH_MODEL_O_BIAS) add_tensor(l, i, "self_attn.o_proj.bias", H, 0);
    add_tensor(l, i, "post_attention_layernorm.weight", H, 0);
    add_tensor(l, i, "mlp.gate_proj.weight", I, H);
    add_tensor(l, i, "mlp.up_proj.weight", I, H);
    if (m->flags & TH_MODEL_MLP_BIAS) {
      add_tensor(l, i, "mlp.gate_proj.bias", I, 0);
      add_tensor(l, i, "mlp.up_proj.bias", I, 0);
    }
    add_tensor(l, i, "mlp.down_proj.weight", H, I);
    if (m->flags & TH_MODEL_MLP_BIAS) add_tensor(l, i, "mlp.down_proj.bias", H, 0);
  }
  add_tensor(l, UINT32_MAX, "model.norm.weight", H, 0);
  if (!(m->flags & TH_MODEL_TIED_EMBEDDINGS)) add_tensor(l, UINT32_MAX, "lm_head.weight", m->vocab, H);
}
#endif
