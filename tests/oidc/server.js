// An OpenID provider for tests: npm's oidc-provider, which really checks PKCE, redirect addresses, client
// secrets and rotated refresh tokens. Reads its configuration as one line of JSON on stdin, prints its issuer
// as one line of JSON, and ends when stdin is closed.
//
// Everybody signs in without a form: as `login_hint`, else as `login`. The person `nobody` refuses.
// POST /control changes it while it runs, and returns its counts.

import { generateKeyPairSync, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { createInterface } from "node:readline";

import Provider from "oidc-provider";
import MemoryAdapter from "oidc-provider/lib/adapters/memory_adapter.js";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const config = {
  port: 0,
  clients: [], // as in the registry of the provider: client_id, client_secret, redirect_uris
  people: {}, // sub: further claims, such as { email, email_verified, groups }
  login: "alice",
  access_seconds: 3600,
  rotate: true, // a refresh token is valid once; its second use revokes the whole grant
  ...JSON.parse((await lines.next()).value),
};
const store = new Map();
const counts = { requests: 0, code: 0, refresh: 0, failed: 0 }; // of the token endpoint
let hold = ""; // `before`: token requests wait to be processed, `after`: their answers wait to be sent
let released = [];
let provider;

function newKey() {
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const kid = randomBytes(8).toString("hex");
  return { ...privateKey.export({ format: "jwk" }), alg: "ES256", use: "sig", kid };
}

function findAccount(_, sub) {
  return { accountId: sub, claims: () => ({ sub, ...config.people[sub] }) };
}

function makeProvider(keys) {
  const made = new Provider(config.issuer, {
    adapter: (model) => new MemoryAdapter(model, store),
    clients: config.clients.map((client) => ({
      grant_types: ["authorization_code", "refresh_token"],
      id_token_signed_response_alg: "ES256",
      ...client,
    })),
    claims: {
      openid: ["sub"],
      email: ["email", "email_verified"],
      profile: ["name", "preferred_username"],
      groups: ["groups"],
    },
    conformIdTokenClaims: false, // like many providers: the claims of a scope are in the token
    cookies: { keys: ["of the tests alone"] },
    features: {
      devInteractions: { enabled: false },
      revocation: { enabled: true },
      rpInitiatedLogout: { enabled: true },
    },
    findAccount,
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    issueRefreshToken: (_, client) => client.grantTypeAllowed("refresh_token"),
    jwks: { keys },
    pkce: { required: () => true },
    rotateRefreshToken: config.rotate,
    scopes: ["openid", "offline_access", "email", "profile", "groups", "models"],
    ttl: {
      AccessToken: config.access_seconds,
      AuthorizationCode: 60,
      Grant: 86_400,
      IdToken: 3600,
      Interaction: 600,
      RefreshToken: 86_400,
      Session: 86_400,
    },
  });
  made.use(async (ctx, next) => {
    if (ctx.path !== "/token") return next();
    counts.requests += 1;
    if (hold === "before") await new Promise((resolve) => released.push(resolve));
    if (ctx.req.socket.destroyed) return; // as if the request of a killed client had never arrived
    await next();
    if (hold === "after") await new Promise((resolve) => released.push(resolve));
  });
  made.on("grant.success", (ctx) => {
    counts[ctx.oidc.params.grant_type === "refresh_token" ? "refresh" : "code"] += 1;
  });
  made.on("grant.error", () => {
    counts.failed += 1;
  });
  return made;
}

// The person's browser: signs in and consents at once.
async function interact(request, response) {
  const { params, session } = await provider.interactionDetails(request, response);
  const accountId = params.login_hint ?? session?.accountId ?? config.login;
  if (accountId === "nobody") {
    const refused = { error: "access_denied", error_description: "The person refused." };
    return provider.interactionFinished(request, response, refused, { mergeWithLastSubmission: false });
  }
  const grant = new provider.Grant({ accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope ?? "");
  const result = { login: { accountId }, consent: { grantId: await grant.save() } };
  return provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
}

async function control(request, response) {
  let body = "";
  for await (const chunk of request) body += chunk;
  const change = JSON.parse(body || "{}");
  if ("hold" in change) {
    hold = change.hold;
    if (!hold) for (const resolve of released.splice(0)) resolve();
  }
  if (change.revoke) {
    for (const key of [...store.keys()]) if (/^(RefreshToken|AccessToken):/.test(key)) store.delete(key);
  }
  if (change.rotate_keys) provider = makeProvider([newKey()]);
  if (change.people) Object.assign(config.people, change.people);
  if (change.login) config.login = change.login;
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(counts));
}

const server = createServer((request, response) => {
  const path = request.url.split("?")[0];
  let answered;
  if (path === "/control") answered = control(request, response);
  else if (path.startsWith("/interaction/")) answered = interact(request, response);
  else answered = provider.callback()(request, response);
  Promise.resolve(answered).catch((problem) => {
    console.error(problem);
    if (!response.headersSent) response.writeHead(500).end(String(problem));
  });
});
server.listen(config.port, "127.0.0.1", async () => {
  config.issuer = `http://127.0.0.1:${server.address().port}`;
  provider = makeProvider([newKey()]);
  console.log(JSON.stringify({ issuer: config.issuer }));
  await lines.next();
  process.exit(0);
});
