// Uploads by tus-js-client: node uploads.mjs MODULES FILE URL, where URL has {n} for a number.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";

const [modules, file, url] = process.argv.slice(2);
const tus = createRequire(resolve(modules, "x.js"))("tus-js-client");
const content = readFileSync(file);
const chunkSize = Math.ceil(content.length / 5);

function upload(endpoint, protocol, options, abortAfter) {
  return new Promise((done, failed) => {
    let aborted = false;
    const made = new tus.Upload(content, {
      endpoint,
      protocol,
      chunkSize,
      retryDelays: [0, 200, 1000],
      metadata: { filename: "stream.bin", filetype: "application/octet-stream" },
      ...options,
      onError: failed,
      onSuccess: () => done(made.url),
      onChunkComplete: async (_size, accepted) => {
        if (abortAfter && !aborted && accepted >= abortAfter) {
          aborted = true;
          await made.abort();
          const next = { ...options, uploadUrl: made.url };
          upload(endpoint, protocol, next).then(done, failed);
        }
      },
    });
    made.start();
  });
}

let number = 0;
let failures = 0;
for (const protocol of ["tus-v1", "ietf-draft-03", "ietf-draft-05"]) {
  const ways = {
    plain: [{}],
    "abort and resume": [{}, chunkSize],
    "creation with upload": [{ uploadDataDuringCreation: true }],
  };
  for (const [name, [options, abortAfter]] of Object.entries(ways)) {
    number += 1;
    const endpoint = url.replace("{n}", number);
    try {
      await upload(endpoint, protocol, options, abortAfter);
      console.log(`ok      ${protocol} ${name}`);
    } catch (error) {
      failures += 1;
      console.log(`failed  ${protocol} ${name}: ${error}`);
    }
  }
}
process.exit(failures ? 1 : 0);
