import { defineConfig } from "vite";

// Entry of each bundle of the SDK. A bundle is one classic script: a page loads it before its own scripts.
const BUNDLES: Record<string, string> = { gsv: "sdk/main.ts", generated: "sdk/generated/main.ts" };

export default defineConfig({
  build: { outDir: "../src/easel/ui/sdk", emptyOutDir: false, target: "esnext" },
  environments: Object.fromEntries(
    Object.entries(BUNDLES).map(([name, entry]) => [
      name,
      {
        consumer: "client",
        build: {
          lib: { entry, name: "easel", formats: ["iife"], fileName: () => `${name}.js`, cssFileName: name },
          rolldownOptions: { output: { strict: true } },
        },
      },
    ]),
  ),
  builder: {
    async buildApp(builder) {
      for (const name of Object.keys(BUNDLES)) {
        const bundle = builder.environments[name];
        if (bundle) await builder.build(bundle);
      }
    },
  },
});
