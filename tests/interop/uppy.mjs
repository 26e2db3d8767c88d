// What runs in the page: Uppy uploads /stream.bin to the address in the page's query, and the page's
// server is told how it ended.
import Uppy from "@uppy/core";
import Tus from "@uppy/tus";

const endpoint = new URLSearchParams(location.search).get("endpoint");

async function upload() {
  const content = await (await fetch("/stream.bin")).arrayBuffer();
  const uppy = new Uppy({ autoProceed: false });
  uppy.use(Tus, { endpoint, retryDelays: [0, 200, 1000, 3000], chunkSize: 1 << 20 });
  uppy.addFile({ name: "stream.bin", type: "application/octet-stream", data: new Blob([content]) });
  const { successful, failed } = await uppy.upload();
  return { uploaded: successful.map((f) => f.uploadURL), errors: failed.map((f) => f.error) };
}

const outcome = await upload().catch((error) => ({ uploaded: [], errors: [String(error)] }));
await fetch("/outcome", { method: "POST", body: JSON.stringify(outcome) });
