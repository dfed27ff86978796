"""The doors: both formats on one set of names, one error for all that does not fit, and nothing run or opened besides."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from model_files import HIDDEN, LAYERS, TOKENS, hf_config, hf_shapes, tiny_gguf, write_hf_folder

from octavo.errors import ModelError
from octavo.loaders.load import open_weights, read_generation_defaults, read_spec, read_text

CANONICAL_LAYER = ["attn_norm", "q", "k", "v", "o", "mlp_norm", "gate", "up", "down"]
CANONICAL = ["embed", "norm", *(f"layers.{i}.{name}" for i in range(LAYERS) for name in CANONICAL_LAYER)]


def test_both_formats_give_the_same_names_and_shapes(tmp_path):
    folder = write_hf_folder(tmp_path / "hf")
    (tmp_path / "m.gguf").write_bytes(tiny_gguf())
    from_hf, from_gguf = open_weights(folder), open_weights(tmp_path / "m.gguf")
    assert set(from_hf.tensors) == {*CANONICAL, "lm_head"}
    assert set(from_gguf.tensors) == set(CANONICAL)
    assert all(from_hf.tensors[name].shape == from_gguf.tensors[name].shape for name in CANONICAL)
    assert from_gguf.num_bytes == sum(len(tensor.data) for tensor in from_gguf.tensors.values())


def test_a_folder_that_holds_one_gguf_file_stands_for_it(tmp_path):
    (tmp_path / "m.gguf").write_bytes(tiny_gguf())
    assert read_spec(tmp_path) == read_spec(tmp_path / "m.gguf")
    assert read_text(tmp_path).gguf_vocabulary.tokens == tuple(TOKENS)
    assert read_generation_defaults(tmp_path).bos_token_id == 1


def test_two_gguf_files_in_a_folder_must_be_told_apart(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(tiny_gguf())
    with pytest.raises(ModelError, match=r"name one of them: a.gguf, b.gguf"):
        read_spec(tmp_path)


def test_a_file_that_changes_is_read_anew(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny_gguf())
    assert read_spec(path).max_position == 128
    path.write_bytes(tiny_gguf(llama__context_length=64, general__name="another length of file"))
    assert read_spec(path).max_position == 64


def test_everything_that_does_not_fit_is_told_in_one_error(tmp_path):
    shapes = hf_shapes()
    del shapes["model.norm.weight"], shapes["model.layers.1.self_attn.k_proj.weight"]
    shapes |= {"model.layers.0.mlp.up_proj.weight": (3, 5), "model.layers.7.mlp.up_proj.weight": (1,), "extra": (2,)}
    with pytest.raises(ModelError) as caught:
        open_weights(write_hf_folder(tmp_path, shapes=shapes))
    assert "missing: model.norm.weight, model.layers.1.self_attn.k_proj.weight." in caught.value.message
    assert "left over: model.layers.7.mlp.up_proj.weight, extra." in caught.value.message
    assert "mis-shaped: model.layers.0.mlp.up_proj.weight is (3, 5), the settings give (64, 32)" in caught.value.message


def test_rotary_frequencies_and_a_tied_models_copy_may_be_left_over(tmp_path):
    shapes = hf_shapes() | {"model.layers.0.self_attn.rotary_emb.inv_freq": (4,), "model.rotary_emb.inv_freq": (4,)}
    checkpoint = open_weights(write_hf_folder(tmp_path, config=hf_config(tie_word_embeddings=True), shapes=shapes))
    assert set(checkpoint.tensors) == set(CANONICAL)


def test_an_untied_model_without_its_output_matrix_is_refused(tmp_path):
    shapes = hf_shapes()
    del shapes["lm_head.weight"]
    with pytest.raises(ModelError, match=r"missing: lm_head.weight"):
        open_weights(write_hf_folder(tmp_path, shapes=shapes))


def test_a_million_layers_are_refused_without_naming_each(tmp_path):
    with pytest.raises(ModelError, match="announce 1,000,000 layers, but its files hold 21 tensors"):
        open_weights(write_hf_folder(tmp_path, config=hf_config(num_hidden_layers=1_000_000)))


@pytest.mark.parametrize("name", ["w.bin", "w.pt", "w.pth", "w.ckpt", "w.pkl", "w.npz"])
def test_pickled_weights_are_refused_as_file_and_as_folder(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x80\x04.")
    (tmp_path / "config.json").write_text(json.dumps(hf_config()))
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(ModelError, match="can run code when opened"):
            open_weights(path)


@pytest.mark.parametrize("name", ["absent", "absent.gguf", "notes.txt"])
def test_what_is_no_model_is_refused(tmp_path, name):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ModelError, match=name):
        open_weights(tmp_path / name)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"neither config.json nor a .gguf file"):
        read_spec(tmp_path)


AUDIT = """
import sys
from pathlib import Path
from octavo.loaders import hf_text, tensor_names  # our own code, which the doors would import
from octavo.loaders.load import open_weights, read_generation_defaults, read_spec, read_text
folder = Path(sys.argv[1])
seen = []
def hook(event, args):
    if event == "open" and str(args[0]).startswith(str(folder)):
        seen.append(Path(args[0]).name)
    if event == "import" and args[0].split(".")[0] in ("modeling_evil", "torch", "transformers"):
        seen.append("import " + args[0])
    if event in ("subprocess.Popen", "os.system", "socket.connect", "exec"):
        seen.append(event)
sys.addaudithook(hook)
for door in (read_spec, read_text, read_generation_defaults, open_weights):
    door(folder)
print(*sorted(set(seen)))
"""


def test_opening_a_folder_opens_its_data_files_and_nothing_that_could_run(tmp_path):
    auto_map = {"AutoModelForCausalLM": "modeling_evil.Evil", "AutoConfig": "modeling_evil.Config"}
    folder = write_hf_folder(tmp_path / "evil", config=hf_config(auto_map=auto_map))
    (folder / "modeling_evil.py").write_text("raise SystemExit('ran')")
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    (folder / "generation_config.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": auto_map}))
    result = subprocess.run([sys.executable, "-c", AUDIT, str(folder)], capture_output=True, text=True)
    assert result.stderr == ""
    expected = "chat_template.jinja config.json generation_config.json model.safetensors tokenizer.json tokenizer_config.json"
    assert result.stdout.split() == expected.split()


def test_importing_the_doors_brings_no_array_library_and_no_hub_client():
    code = "import sys, octavo.loaders.load, octavo.loaders.store; print(*{'numpy', 'huggingface_hub', 'rich'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


@pytest.fixture
def default_model() -> Path:
    from octavo.loaders.store import resolve_model

    try:
        return resolve_model("smollm2-135m-instruct")
    except ModelError as error:
        pytest.skip(error.message)


@pytest.mark.model
def test_the_default_model_has_its_known_numbers(default_model):
    checkpoint = open_weights(default_model)
    spec = checkpoint.spec
    assert (spec.family, spec.num_layers, spec.hidden_size, spec.num_heads, spec.num_kv_heads) == ("llama", 30, 576, 9, 3)
    assert (spec.vocab_size, spec.max_position, spec.rope.theta, spec.tie_embeddings) == (49_152, 8192, 100_000.0, True)
    assert len(checkpoint.tensors) == 272
    assert checkpoint.tensors["embed"].format.name == "Q8_0"
    assert {
        checkpoint.tensors[f"layers.{i}.{name}"].format.name for i in range(30) for name in ("q", "k", "v", "o", "gate", "up", "down")
    } == {"Q4_1"}
    text = read_text(default_model)
    assert (len(text.gguf_vocabulary.tokens), len(text.gguf_vocabulary.merges), text.eos_token_ids) == (49_152, 48_900, (2,))
    assert read_generation_defaults(default_model).eos_token_ids == (2,)


def test_shapes_of_norms_are_vectors(tmp_path):
    (tmp_path / "m.gguf").write_bytes(tiny_gguf())
    assert open_weights(tmp_path / "m.gguf").tensors["norm"].shape == (HIDDEN,)


def test_a_gguf_file_needs_no_reader_of_folders(tmp_path):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_gguf())
    code = "import sys; from pathlib import Path; from octavo.loaders.load import open_weights, read_text; path = Path(sys.argv[1])"
    code += "; open_weights(path); read_text(path); print(*(name for name in sys.modules if 'hf_' in name or 'safetensors' in name))"
    assert subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_a_file_is_mapped_no_longer_than_its_weights_are_held(tmp_path):
    path = tmp_path / "weights-of-this-test.gguf"
    path.write_bytes(tiny_gguf())
    read_text(path)
    checkpoint = open_weights(path)
    assert path.name in Path("/proc/self/maps").read_text()
    del checkpoint
    assert path.name not in Path("/proc/self/maps").read_text()
