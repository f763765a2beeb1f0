#!/usr/bin/env python3
"""Write tests/core/records/renderings.inc: conversations as transformers renders them with the chat templates of models.

The templates restate what the publishers distribute in tokenizer_config.json, with the same texts, variables and
conditions for conversations without tools; the parts for tools are left out. Needs transformers and jinja2:

    tests/interop/chat_renderings.py > tests/core/records/renderings.inc
"""
import json
import sys

import transformers
from transformers.utils.chat_template_utils import _compile_jinja_template

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def chatml_with_default(system):
    return CHATML.replace(
        "{% for message in messages %}",
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\\n" + system + "<|im_end|>\\n' }}{% endif %}")


QWEN25 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}
    {%- endif %}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant") %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

QWEN3 = """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
    "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}")

LLAMA3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim"
    " + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}")

LLAMA31 = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% endif %}{% endfor %}")

MISTRAL_SYSTEM = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if WHERE and system_message is defined %}
            {{- "BEFORE" + system_message + "\\n\\n" + message["content"] + "AFTER" }}
        {%- else %}
            {{- "BEFORE" + message["content"] + "AFTER" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- ANSWER + eos_token}}
    {%- endif %}
{%- endfor %}
"""


def mistral_system(where, before, after, answer):
    return (MISTRAL_SYSTEM.replace("WHERE", where).replace("BEFORE", before).replace("AFTER", after)
            .replace("ANSWER", answer))


GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}"
    "{% set role = message['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}")

GEMMA3 = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {{ message['content'] | trim }}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
""".replace('"") }}\n    {{ message', '"") -}}\n    {{- message').replace("| trim }}\n    {{ '<end", "| trim -}}\n    {{- '<end")

PHI3 = (
    "{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}"
    "{% elif message['role'] == 'user' %}{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}"
    "{% elif message['role'] == 'assistant' %}{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}")

PHI4 = (
    "{% for message in messages %}{% if (message['role'] == 'system') %}"
    "{{'<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>'}}"
    "{% elif (message['role'] == 'user') %}{{'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'}}"
    "{% elif (message['role'] == 'assistant') %}{{'<|im_start|>assistant<|im_sep|>' + message['content'] + '<|im_end|>'}}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}")

PHI4_MINI = (
    "{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' + '<|end|>' }}"
    "{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}")

ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

ALPACA = (
    "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}{% set loop_messages = messages[1:] %}{% else %}"
    "{{ 'Below is an instruction that describes a task. Write a response that appropriately completes the request.' }}"
    "{% set loop_messages = messages %}{% endif %}{% for message in loop_messages %}{% if message['role'] == 'user' %}"
    "{{ '\\n\\n### Instruction:\\n' + message['content'] }}{% else %}"
    "{{ '\\n\\n### Response:\\n' + message['content'] + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '\\n\\n### Response:\\n' }}{% endif %}")

# name of the built-in template ("" = recognized with other texts), tokens, Jinja text
TEMPLATES = [
    ("chatml", "", "<|im_end|>", CHATML),
    ("chatml", "<s>", "</s>", "{{ bos_token }}" + CHATML),
    ("smollm2", "<|im_start|>", "<|im_end|>",
     chatml_with_default("You are a helpful AI assistant named SmolLM, trained by Hugging Face")),
    ("qwen2", "", "<|im_end|>", chatml_with_default("You are a helpful assistant.")),
    ("qwen2.5", "", "<|im_end|>", QWEN25),
    ("qwen3", "", "<|im_end|>", QWEN3),
    ("llama-2", "<s>", "</s>", LLAMA2),
    ("llama-3", "<|begin_of_text|>", "<|eot_id|>", LLAMA3),
    ("llama-3.1", "<|begin_of_text|>", "<|eot_id|>", LLAMA31),
    ("mistral", "<s>", "</s>", MISTRAL),
    ("mistral", "<s>", "</s>",
     mistral_system("loop.first", " [INST] ", " [/INST]", '" " + message["content"]')),
    ("mistral-v3", "<s>", "</s>",
     mistral_system("loop.last", "[INST] ", "[/INST]", '" " + message["content"]|trim')),
    ("mistral-nemo", "<s>", "</s>", mistral_system("loop.last", "[INST]", "[/INST]", 'message["content"]')),
    ("gemma", "<bos>", "<eos>", GEMMA),
    ("gemma-3", "<bos>", "<eos>", GEMMA3),
    ("phi-3", "<s>", "<|endoftext|>", PHI3),
    ("phi-4", "<|endoftext|>", "<|im_end|>", PHI4),
    ("phi-4-mini", "<|endoftext|>", "<|endoftext|>", PHI4_MINI),
    ("zephyr", "<s>", "</s>", ZEPHYR),
    ("alpaca", "<s>", "</s>", ALPACA),
]

# The last one of each pair has a system message; spaces around contents show what is trimmed.
CONVERSATIONS = [
    [("user", "What is 2 + 3?"), ("assistant", "It is 5.")],
    [("user", "  Who are you? "), ("assistant", " A model.\n"), ("user", "\nSince when?"), ("assistant", "Today.  ")],
    [("user", "Count."), ("assistant", "<think>\none, two\n</think>\n\n1 2"), ("user", "On."),
     ("assistant", "<think>\nthree\n</think>\n\n3")],
    [("system", "Answer in one word. "), ("user", "Colour of the sky?"), ("assistant", "Blue"), ("user", "Of snow?"),
     ("assistant", "White")],
    [("system", "Be brief."), ("user", "Name a \"city\" in Österreich\nor in 日本.")],
]


def rendered(jinja, bos, eos, conversation):
    messages = [{"role": role, "content": content} for role, content in conversation]
    try:
        return _compile_jinja_template(jinja).render(
            messages=messages, bos_token=bos, eos_token=eos, tools=None,
            add_generation_prompt=conversation[-1][0] == "user")
    except Exception as e:  # the template refuses system messages
        print(e, file=sys.stderr)
        return None


def literal(text):
    return "nullptr" if text is None else json.dumps(text, ensure_ascii=False)


def main():
    print(f"// Written by tests/interop/chat_renderings.py with transformers {transformers.__version__}; do not edit.")
    print("// name, bos token, eos token, Jinja text, then one rendering per conversation; nullptr = refused.")
    for name, bos, eos, jinja in TEMPLATES:
        print("{%s, %s, %s,\n %s,\n {" % (literal(name), literal(bos), literal(eos), literal(jinja)), end="")
        print(",\n  ".join(literal(rendered(jinja, bos, eos, c)) for c in CONVERSATIONS), end="}},\n")


if __name__ == "__main__":
    main()
