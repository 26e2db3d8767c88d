// Lines that fetch what a page shows: with curl, with the client for Python, with zarr.
import { make } from "./api.js";

const TILE = 1 << 23; // bytes of a tile, about

const list = (values) => `(${values.join(", ")}${values.length === 1 ? "," : ""})`;
const slices = (ranges) => list(ranges.map(([from, to]) => `slice(${from}, ${to})`));

// A view whose tiles follow each other in C order, so that its bytes are one array. Where positions
// have no frame, it is a list of frames.
export function contiguous(view, shape, itemsize, isList) {
  const tile = isList ? [shape.slice(0, -2).reduce((a, b) => a * b), ...shape.slice(-2)] : [...shape];
  const size = (lengths) => lengths.reduce((a, b) => a * b, itemsize);
  for (let axis = 0; axis < tile.length - 2 && size(tile) > TILE; axis += 1) {
    tile[axis] = Math.max(1, Math.min(tile[axis], Math.floor(TILE / size(tile.slice(axis + 1)))));
  }
  return { ...view, tile_shape: tile };
}

const quoted = (value) => `'${JSON.stringify(value)}'`;
const header = (keyed) => (keyed ? ` -H "Authorization: Bearer $THALWEG_KEY"` : "");
const client = (origin, keyed) => [
  ...(keyed ? ["import os"] : []), "import thalweg", "",
  `client = thalweg.Client("${origin}"${keyed ? `, key=os.environ["THALWEG_KEY"]` : ""})`,
];
const python = (value) => JSON.stringify(value).replaceAll(":", ": ").replaceAll(",", ", ");

// Of frames, or parts of them: `stored` is the view as the service keeps it.
export function ofView(origin, id, nav, sig, stored, keyed) {
  const place = `${origin}/v1/datasets/${id}/views/${stored.id}`;
  const one = stored.tiles === 1;
  const options = [`nav=${slices(nav)}`, ...(sig ? [`sig=${slices(sig)}`] : [])].join(", ");
  const storage = keyed ? `, storage_options={"headers": {"Authorization": "Bearer " + os.environ["THALWEG_KEY"]}}` : "";
  return {
    curl: one
      ? [`curl -sS --fail-with-body${header(keyed)} '${place}/tiles/0?format=npy' -o frames.npy`]
      : [`curl -sS --fail-with-body${header(keyed)} '${place}/raw' -o frames.raw`,
        `# numpy.fromfile("frames.raw", "${stored.dtype}").reshape(${list(stored.shape)})`],
    Python: [...client(origin, keyed), `frames = client.datasets["${id}"].view(${options}).read()`],
    zarr: [...(keyed ? ["import os"] : []), "import zarr  # with fsspec and aiohttp", "",
      `frames = zarr.open_array("${origin}/zarr/${stored.id}.${stored.fingerprint}/data", mode="r"${storage})[:]`],
  };
}

// Of a result of a reduction.
export function ofImage(origin, id, view, reduction, keyed) {
  const part = view.select ? `, scan.view(nav=${slices(view.select.nav)})` : "";
  return {
    curl: [`curl -sS --fail-with-body${header(keyed)} -H 'Content-Type: application/json' -d ${quoted({ view, reduction })} '${origin}/v1/datasets/${id}/reduce?format=npy' -o image.npy`],
    Python: [...client(origin, keyed), `scan = client.datasets["${id}"]`,
      `(image,) = scan.reduce(${python(reduction)}${part}).values()`],
  };
}

// Of a batch of a pipeline, and of those after it.
export function ofBatches(origin, id, { seq, token }, keyed) {
  return {
    curl: [`curl -sS --fail-with-body${header(keyed)} '${origin}/v1/pipelines/${id}/batch?offset=${seq}&format=arrow' -o batch.arrow`],
    Python: [...client(origin, keyed), `pipeline = client.pipeline(client.pipeline_info("${id}")["spec"])`,
      `for batch in pipeline.batches(skip=${seq}):`, "    print(batch.token)  # batches(after=token) goes on"],
    command: [`thalweg --url ${origin} batches ${id} --after ${token}  # those after it`],
  };
}

async function copy(button, block) {
  getSelection().selectAllChildren(block);
  try {
    await navigator.clipboard.writeText(block.textContent);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Selected: copy it"; // pages that are not secure have no clipboard
  }
}

// Shows lines by the tool that runs them, each with a button that copies them.
export function showLines(element, title, tools) {
  element.append(make("h3", {}, title), ...Object.entries(tools).map(([tool, lines]) => {
    const block = make("pre", { tabindex: 0, "data-tool": tool, "aria-label": `${title}, ${tool}` }, lines.join("\n"));
    const button = make("button", { type: "button", class: "plain", onclick: () => copy(button, block) }, "Copy");
    return make("div", {}, make("p", {}, `${tool} `, button), block);
  }));
}
