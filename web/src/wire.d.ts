// Printed by `make types` from the tables of Easel; `tests/test_wire_types.py` compares it.

/** Any JSON value. */
export type Json = null | boolean | number | string | Json[] | { [member: string]: Json };

/** A JSON object, such as the spec or the state of a canvas. */
export type JsonObject = { [member: string]: Json };

/** A value of any media type but JSON. */
export type Bytes = unknown;

/** The methods of the gateway, also over HTTP by `POST /api/rpc`. */
export interface Methods {
  "canvas.list": { params: ListCanvases; result: CanvasPage };
  "canvas.get": { params: OfCanvas; result: CanvasResult };
  "canvas.create": { params: WriteCanvas; result: CanvasResult };
  "canvas.upsert": { params: WriteCanvas; result: CanvasResult };
  "canvas.patch": { params: PatchCanvas; result: CanvasResult };
  "canvas.delete": { params: DeleteCanvas; result: DeletedCanvas };
  "canvas.action": { params: RunAction; result: ActionCompleted | ActionRefused | ActionCancelled | ActionAsked };
  "canvas.confirm": { params: Confirmation; result: ActionCompleted | ActionRefused | ActionCancelled | ActionAsked };
  "canvas.cancel": { params: CancelAction; result: ActionCompleted | ActionRefused | ActionCancelled | ActionAsked };
  "canvas.accept": { params: AcceptSpec; result: CanvasResult };
  "canvas.confirmations": { params: ListConfirmations; result: ConfirmationPage };
  "canvas.records": { params: ListRecords; result: RecordPage };
  "canvas.versions": { params: ListVersions; result: VersionsResult };
  "canvas.restore": { params: RestoreCanvas; result: CanvasResult };
  "canvas.input": { params: EnterInput; result: CanvasResult };
  "canvas.report": { params: ReportPage; result: ReportedPage };
  "canvas.open": { params: OpenCanvas; result: OpenedCanvas };
  "canvas.close": { params: CloseCanvas; result: ClosedCanvas };
  "canvas.asset.put": { params: PutAsset; result: StoredAsset };
  "canvas.asset.get": { params: NamedAsset; result: AssetContent };
  "canvas.asset.list": { params: ListOfCanvas; result: AssetPage };
  "canvas.asset.delete": { params: DeleteAsset; result: DeletedAsset };
  "tools.list": { params: ListItems; result: ToolPage };
  "tool.invoke": { params: InvokeTool; result: InvokedTool };
  "nodes.list": { params: ListItems; result: NodePage };
  "ping": { params: Record<string, never>; result: Pong };
}

/** The methods of the WebSocket alone. */
export interface ConnectionMethods {
  "canvas.subscribe": { params: Subscribe; result: CanvasSubscription };
  "canvas.unsubscribe": { params: OfCanvas; result: CanvasSubscription };
  "connect": { params: Connect; result: Hello };
  "tool.result": { params: ToolResultParams; result: Receipt };
  "tool.progress": { params: ToolProgress; result: Receipt };
}

/** The payload of every event type. */
export interface Events {
  "message.delta": MessageDelta;
  "message.completed": MessageCompleted;
  "tool.call": ToolCallPayload;
  "tool.result": ToolResultPayload;
  "reasoning.delta": ReasoningDelta;
  "step.completed": StepCompleted;
  "run.start": RunStart;
  "run.status": RunStatusPayload;
  "whiteboard.write": WhiteboardWrite;
  "blackboard.write": BlackboardWrite;
  "done": RunDone;
  "canvas.created": CanvasCreated;
  "canvas.updated": CanvasUpdated;
  "canvas.view.updated": CanvasViewUpdated;
  "canvas.snapshot": CanvasSnapshotTaken;
  "canvas.action.asked": ActionAskedPayload;
  "canvas.action.started": ActionStarted;
  "canvas.action.output": ActionOutput;
  "canvas.action.finished": ActionFinished;
  "canvas.action.failed": ActionFailedPayload;
  "canvas.action.refused": ActionRefusedPayload;
  "canvas.refresh.failed": RefreshFailed;
  "canvas.refresh.recovered": RefreshRecovered;
  "canvas.document.changed": DocumentChanged;
  "canvas.lease.changed": LeaseChanged;
  "session.created": SessionCreated;
  "session.renamed": SessionRenamed;
  "session.removed": SessionRemoved;
}

/** The gateway's notices. */
export interface Notices {
  "canvas.unsubscribed": EndedSubscription;
  "tool.invoke": NodeCall;
  "tool.cancel": CancelledNodeCall;
}

export type ChatRequest = NewChatMessage | Cancel | Ping;

export type ChatNotice = ChatError | ChatWarnings | ChatPong;

/** The types of logged events, each with its `data`. */
export type EventType = keyof Events;

/** An event of a log, as every stream and the chat send it. */
export interface EventOf<T extends EventType> {
  seq: number;
  type: T;
  /** Time in ISO 8601. */
  ts: string;
  data: Events[T];
}

export type LoggedEvent = { [T in EventType]: EventOf<T> }[EventType];

/** The frame of an event of a canvas's log on the gateway. */
export type EventFrame = {
  [T in EventType]: { type: "evt"; event: T; payload: Events[T]; seq: number };
}[EventType];

/** The frame of a notice on the gateway: it is not logged, and has no `seq`. */
export type NoticeFrame = {
  [N in keyof Notices]: { type: "evt"; event: N; payload: Notices[N] };
}[keyof Notices];

/** A request on the gateway. */
export type RequestFrame = {
  [M in keyof AllMethods]: { type: "req"; id: string; method: M; params: AllMethods[M]["params"] };
}[keyof AllMethods];

/** The frame of an answer on the gateway, to a request of the method `M`. */
export type AnswerFrame<M extends keyof AllMethods> =
  | { type: "res"; id: string; ok: true; payload: AllMethods[M]["result"] }
  | { type: "res"; id: string | null; ok: false; error: RefusedRequest };

/** Every method of the gateway. */
export interface AllMethods extends Methods, ConnectionMethods {}

/** What the chat sends. */
export type ChatFrame = LoggedEvent | ChatNotice;

/** The routes of the HTTP API, by method and path. `warnings` may be in any JSON answer. */
export interface Routes {
  /** Start a run. It is stored when the response is sent. */
  "POST /api/runs": { path: Record<string, never>; query: Record<string, never>; body: StartRun; status: 202; response: RunStarted & { warnings?: string[] } };
  /** List runs, newest first. */
  "GET /api/runs": { path: Record<string, never>; query: ListRuns; body: Record<string, never>; status: 200; response: RunPage & { warnings?: string[] } };
  /** Get a run. */
  "GET /api/runs/{run_id}": { path: { run_id: string }; query: Record<string, never>; body: Record<string, never>; status: 200; response: RunView & { warnings?: string[] } };
  /** Request that a run stops, without waiting for it. */
  "POST /api/runs/{run_id}/cancel": { path: { run_id: string }; query: Record<string, never>; body: Record<string, never>; status: 202; response: RunView & { warnings?: string[] } };
  /** Stream the run's log as server-sent events; resumable by Last-Event-ID. */
  "GET /api/runs/{run_id}/events": { path: { run_id: string }; query: StreamQuery; body: Record<string, never>; status: 200; response: string };
  /** Write a value for the whole run. */
  "POST /api/runs/{run_id}/whiteboard": { path: { run_id: string }; query: Record<string, never>; body: WriteWhiteboard; status: 200; response: BoardWritten & { warnings?: string[] } };
  /** Read the whiteboard, or one value of it. */
  "GET /api/runs/{run_id}/whiteboard": { path: { run_id: string }; query: ReadBoard; body: Record<string, never>; status: 200; response: BoardView & { warnings?: string[] } };
  /** Write a value for one edge. */
  "POST /api/runs/{run_id}/blackboard": { path: { run_id: string }; query: Record<string, never>; body: WriteBlackboard; status: 200; response: BoardWritten & { warnings?: string[] } };
  /** Read the blackboard, one edge of it, or one value of an edge. */
  "GET /api/runs/{run_id}/blackboard": { path: { run_id: string }; query: ReadBoard; body: Record<string, never>; status: 200; response: BoardView & { warnings?: string[] } };
  /** Store bytes. The same bytes are stored once. */
  "POST /api/artifacts": { path: Record<string, never>; query: Record<string, never>; body: Bytes; status: 201; response: ArtifactView & { warnings?: string[] } };
  /** Get the bytes of an artifact, or a range of them. */
  "GET /api/artifacts/{artifact_id}": { path: { artifact_id: string }; query: Record<string, never>; body: Record<string, never>; status: 200; response: Bytes };
  /** Stream the run's status and its boards. */
  "GET /sse/run/{run_id}": { path: { run_id: string }; query: StreamQuery; body: Record<string, never>; status: 200; response: string };
  /** Stream a canvas's changes, with snapshots by reference. */
  "GET /sse/canvas/{canvas_id}": { path: { canvas_id: string }; query: StreamQuery; body: Record<string, never>; status: 200; response: string };
  /** Create a session. */
  "POST /api/sessions": { path: Record<string, never>; query: Record<string, never>; body: CreateSession; status: 201; response: SessionView & { warnings?: string[] } };
  /** List sessions, latest message first. */
  "GET /api/sessions": { path: Record<string, never>; query: ListSessions; body: Record<string, never>; status: 200; response: SessionPage & { warnings?: string[] } };
  /** Get a session. */
  "GET /api/sessions/{session_id}": { path: { session_id: string }; query: Record<string, never>; body: Record<string, never>; status: 200; response: SessionView & { warnings?: string[] } };
  /** Change the title of a session. */
  "PATCH /api/sessions/{session_id}": { path: { session_id: string }; query: Record<string, never>; body: RenameSession; status: 200; response: SessionView & { warnings?: string[] } };
  /** Delete a session with its messages and runs. */
  "DELETE /api/sessions/{session_id}": { path: { session_id: string }; query: Record<string, never>; body: Record<string, never>; status: 204; response: undefined };
  /** List messages, the newest page first, each page in order. */
  "GET /api/sessions/{session_id}/messages": { path: { session_id: string }; query: ListMessages; body: Record<string, never>; status: 200; response: MessagePage & { warnings?: string[] } };
  /** Start a run and stream its log, for older clients. */
  "POST /api/chat/{session_id}": { path: { session_id: string }; query: Record<string, never>; body: ChatMessage; status: 200; response: string };
  /** Store a snapshot of a canvas and notify its viewers. */
  "POST /api/canvases/{canvas_id}/snapshots": { path: { canvas_id: string }; query: Record<string, never>; body: Bytes; status: 201; response: SnapshotView & { warnings?: string[] } };
  /** Get a document. */
  "GET /api/documents/{canvas_id}": { path: { canvas_id: string }; query: Record<string, never>; body: Record<string, never>; status: 200; response: DocumentView & { warnings?: string[] } };
  /** Save the text of a document as a draft. It wins over an agent that edits. */
  "PUT /api/documents/{canvas_id}": { path: { canvas_id: string }; query: Record<string, never>; body: PutDocument; status: 200; response: SavedDocument & { warnings?: string[] } };
  /** List the versions of a document, newest first. */
  "GET /api/documents/{canvas_id}/history": { path: { canvas_id: string }; query: DocumentVersionsQuery; body: Record<string, never>; status: 200; response: VersionPage & { warnings?: string[] } };
  /** Compare two revisions of a document. */
  "GET /api/documents/{canvas_id}/diff": { path: { canvas_id: string }; query: CompareRevisions; body: Record<string, never>; status: 200; response: DifferenceView & { warnings?: string[] } };
  /** Make the text of an earlier revision the current draft. */
  "POST /api/documents/{canvas_id}/restore": { path: { canvas_id: string }; query: Record<string, never>; body: RestoreDocument; status: 200; response: DocumentView & { warnings?: string[] } };
  /** Make the current text a version. */
  "POST /api/documents/{canvas_id}/promote": { path: { canvas_id: string }; query: Record<string, never>; body: Record<string, never>; status: 200; response: PromotedView & { warnings?: string[] } };
  /** End the lease of the agent that edits the document. */
  "POST /api/documents/{canvas_id}/take-control": { path: { canvas_id: string }; query: Record<string, never>; body: Record<string, never>; status: 200; response: DocumentView & { warnings?: string[] } };
  /** List the tools that agents can call, by name. */
  "GET /api/tools": { path: Record<string, never>; query: ListTools; body: Record<string, never>; status: 200; response: ToolList & { warnings?: string[] } };
  /** Get your settings, and where each value comes from. A key is masked. */
  "GET /api/settings": { path: Record<string, never>; query: Record<string, never>; body: Record<string, never>; status: 200; response: SettingsView & { warnings?: string[] } };
  /** Change the named settings; null clears one. A running run uses them from its next step on. */
  "PUT /api/settings": { path: Record<string, never>; query: Record<string, never>; body: ChangeSettings; status: 200; response: SettingsView & { warnings?: string[] } };
  /** Make one small request to your model, and explain what is wrong if it fails. */
  "POST /api/settings/check": { path: Record<string, never>; query: Record<string, never>; body: Record<string, never>; status: 200; response: ModelCheckView & { warnings?: string[] } };
  /** List the names of your secrets, in their order. No answer has a value. */
  "GET /api/secrets": { path: Record<string, never>; query: ListSecrets; body: Record<string, never>; status: 200; response: SecretPage & { warnings?: string[] } };
  /** Store a secret, or replace it. Only a person can. */
  "PUT /api/secrets/{name}": { path: { name: string }; query: Record<string, never>; body: SetSecret; status: 204; response: undefined };
  /** Delete a secret. */
  "DELETE /api/secrets/{name}": { path: { name: string }; query: Record<string, never>; body: Record<string, never>; status: 204; response: undefined };
  /** List the OAuth providers of this host and your connections to them, without tokens. */
  "GET /api/oauth": { path: Record<string, never>; query: Record<string, never>; body: Record<string, never>; status: 200; response: ProviderList & { warnings?: string[] } };
  /** Begin to connect a provider. Open the returned address in the same browser. */
  "POST /api/oauth/{provider}/start": { path: { provider: string }; query: Record<string, never>; body: Record<string, never>; status: 200; response: FlowStarted & { warnings?: string[] } };
  /** Delete a connection with its tokens. */
  "DELETE /api/oauth/{provider}": { path: { provider: string }; query: Record<string, never>; body: Record<string, never>; status: 204; response: undefined };
  /** Get who you are, your role in the account of the request, and your accounts. */
  "GET /api/me": { path: Record<string, never>; query: Record<string, never>; body: Record<string, never>; status: 200; response: Me & { warnings?: string[] } };
  /** Set your password. Your other sign-ins end. */
  "POST /api/me/password": { path: Record<string, never>; query: Record<string, never>; body: ChangePassword; status: 204; response: undefined };
  /** Leave the team of the request. Your runs, questions, tokens and nodes there end. */
  "POST /api/me/leave": { path: Record<string, never>; query: Record<string, never>; body: Record<string, never>; status: 204; response: undefined };
  /** List the members of the account with their roles, by name. */
  "GET /api/members": { path: Record<string, never>; query: ListPeople; body: Record<string, never>; status: 200; response: MemberPage & { warnings?: string[] } };
  /** Add a person to the team, or change their role. A team keeps an admin who is not disabled. */
  "PUT /api/members/{name}": { path: { name: string }; query: Record<string, never>; body: SetMember; status: 200; response: MemberView & { warnings?: string[] } };
  /** Remove a member. Their runs, questions, tokens and nodes in the team end. */
  "DELETE /api/members/{name}": { path: { name: string }; query: Record<string, never>; body: Record<string, never>; status: 204; response: undefined };
  /** Add a person. Returns a token and an invitation link, once. */
  "POST /api/people": { path: Record<string, never>; query: Record<string, never>; body: AddPerson; status: 201; response: PersonAdded & { warnings?: string[] } };
  /** List the people of this host, by name. */
  "GET /api/people": { path: Record<string, never>; query: ListPeople; body: Record<string, never>; status: 200; response: PersonPage & { warnings?: string[] } };
  /** Disable or enable a person. Disabling ends their tokens, connections and runs. */
  "PATCH /api/people/{name}": { path: { name: string }; query: Record<string, never>; body: ChangePerson; status: 200; response: PersonView & { warnings?: string[] } };
  /** Delete a person with all that they own. The name is not given again. */
  "DELETE /api/people/{name}": { path: { name: string }; query: DeletePerson; body: Record<string, never>; status: 204; response: undefined };
  /** Make a new invitation link, for example for a forgotten password. Earlier links end. */
  "POST /api/people/{name}/invitations": { path: { name: string }; query: Record<string, never>; body: Record<string, never>; status: 201; response: Invited & { warnings?: string[] } };
  /** Add a team with its first admin. */
  "POST /api/teams": { path: Record<string, never>; query: Record<string, never>; body: AddTeam; status: 201; response: TeamAdded & { warnings?: string[] } };
  /** List the teams of this host, by name. */
  "GET /api/teams": { path: Record<string, never>; query: ListPeople; body: Record<string, never>; status: 200; response: TeamPage & { warnings?: string[] } };
  /** Delete a team with all that it owns. The name is not given again. */
  "DELETE /api/teams/{name}": { path: { name: string }; query: Record<string, never>; body: Record<string, never>; status: 204; response: undefined };
  /** Create a token of yours in the account, with at most your role. Its secret is returned once. */
  "POST /api/tokens": { path: Record<string, never>; query: Record<string, never>; body: CreateToken; status: 201; response: TokenView & { warnings?: string[] } };
  /** List your tokens in the account, for an admin all of its tokens. */
  "GET /api/tokens": { path: Record<string, never>; query: Record<string, never>; body: Record<string, never>; status: 200; response: TokenList & { warnings?: string[] } };
  /** Revoke a token of yours, as an admin any of the account. Its connections are closed. */
  "DELETE /api/tokens/{token_id}": { path: { token_id: string }; query: Record<string, never>; body: Record<string, never>; status: 204; response: undefined };
  /** List the audit records of the account, newest first; for an operator also those of the host. */
  "GET /api/audit": { path: Record<string, never>; query: ListAudit; body: Record<string, never>; status: 200; response: AuditPage & { warnings?: string[] } };
  /** Get this description. */
  "GET /openapi.json": { path: Record<string, never>; query: Record<string, never>; body: Record<string, never>; status: 200; response: JsonObject };
}

/** The closed set of errors: the code of each name. `name` of an error is one of them. */
export interface Errors {
  ACTION_FAILED: 500;
  ALREADY_EXISTS: 409;
  ATTEMPTS_EXHAUSTED: 500;
  BAD_INPUT: 400;
  BAD_SETTINGS: 500;
  BOARD_FULL: 413;
  CANCELLED: 409;
  CONFIRMATION_CLOSED: 409;
  CORRUPT_DATA: 500;
  CURSOR_OUT_OF_RANGE: 404;
  FORBIDDEN: 403;
  IDEMPOTENCY_CONFLICT: 409;
  INPUT_CONFLICT: 409;
  INTERNAL_ERROR: 500;
  LAST_ADMIN: 409;
  LEASE_EXPIRED: 409;
  LOCK_NOT_AVAILABLE: 409;
  LOCK_NOT_OWNED: 409;
  METHOD_NOT_ALLOWED: 400;
  MODEL_FAILED: 500;
  NOT_CONNECTED: 101;
  NOT_FOUND: 404;
  NOT_IN_MODE: 103;
  NOT_IN_RUN: 400;
  NOT_RUNNING: 409;
  NOT_SIGNED_IN: 401;
  PATCH_REJECTED: 409;
  PROVIDER_REFUSED: 400;
  PROVIDER_UNREACHABLE: 503;
  RANGE_NOT_SATISFIABLE: 400;
  REJECTION_LIMIT: 500;
  REVISION_CONFLICT: 409;
  RUN_FINISHED: 409;
  RUN_TIMED_OUT: 504;
  SECRETS_UNAVAILABLE: 503;
  STALE_EPOCH: 409;
  STEP_LIMIT: 500;
  TEXT_CONFLICT: 409;
  TIMED_OUT: 504;
  TOKEN_LIMIT: 500;
  TOOL_FAILED: 500;
  TOO_LARGE: 413;
  TOO_MANY: 429;
  TOO_MANY_FAILURES: 429;
  UNAVAILABLE: 503;
  VERSION_CONFLICT: 409;
  WRONG_HOST: 400;
  WRONG_MODE: 103;
  WRONG_PROTOCOL: 102;
}

export type ErrorName = keyof Errors;

export interface ListCanvases {
  agentId?: string | null;
  after?: string | null;
  limit?: number;
  offset?: number | null;
}

export interface CanvasPage {
  canvases: CanvasDescriptor[];
  /** Cursor of the next page; absent on the last. */
  next?: string;
  /** Of all canvases; absent in an answer to `after`. */
  count?: number;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

export interface CanvasDescriptor {
  canvasId: string;
  agentId: string;
  title: string;
  ownerSessionKey: string;
  /** html or markdown */
  mode: string;
  entryAsset: string;
  /** Milliseconds since 1970. */
  createdAt: number;
  /** Milliseconds since 1970. */
  updatedAt: number;
  revision: number;
  /** Subscribe after this event. */
  lastSeq: number;
  /** The person who made it, who may delete it as an admin may. Absent: Easel itself. */
  createdBy?: string;
}

/** Params of a method for one canvas. A canvas of another agent than `agentId` is not found. RS-67 */
export interface OfCanvas {
  canvasId: string;
  agentId?: string | null;
}

/** A canvas, after the change of the method. */
export interface CanvasResult {
  descriptor: CanvasDescriptor;
  spec: JsonObject;
  state: JsonObject;
  /** The paths of its assets. */
  assets: string[];
  accepted: boolean;
  /** Of the last change that needs acceptance. */
  specRevision: number;
  views: ViewOfCanvas[];
  revision: number;
  writtenBy?: CanvasAuthor;
  /** The author of the title, if another than `writtenBy`. */
  titledBy?: CanvasAuthor;
  /** Tools that now claim less effect than when the spec was accepted, with reasons. */
  weakenedTools?: Record<string, string>;
  failing?: FailingRefresh[];
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

export interface ViewOfCanvas {
  viewId: string;
  clientId: string;
  /** The person whose view it is, or who answers for the program. */
  userId?: string;
}

export interface CanvasAuthor {
  /** person, agent, service or node */
  kind: string;
  name: string;
}

/** A refresh job whose last execution failed, as in `canvas.refresh.failed`. */
export interface FailingRefresh {
  refreshId: string;
  actionId: string;
  /** In a row. */
  failures: number;
  retryInMs: number;
  error?: ErrorOfAction;
}

export interface ErrorOfAction {
  /** Number of the error in the gateway protocol. */
  code: number;
  /** Name of the error; see the list of errors. */
  name: string;
  message: string | Marker;
}

/** The marker in place of a value that is stored as an artifact. */
export interface Marker {
  /** Always true. */
  redacted: boolean;
  /** Bytes. */
  original_size: number;
  sha256: string;
  /** Returns the exact bytes; ends in `#json` unless it was a text. */
  uri: string;
}

export interface WriteCanvas {
  canvasId?: string | null;
  agentId?: string | null;
  title?: string | null;
  mode?: string | null;
  ownerSessionKey?: string | null;
  spec?: JsonObject | null;
  state?: JsonObject | null;
  assets?: Record<string, string | EncodedAsset> | null;
  accepted?: boolean | null;
  expectedRevision?: number | null;
}

/** An asset that is not text, such as an image or a font. */
export interface EncodedAsset {
  base64: string;
}

export interface PatchCanvas {
  statePatch?: Json[] | null;
  spec?: JsonObject | null;
  title?: string | null;
  mode?: string | null;
  ownerSessionKey?: string | null;
  expectedRevision?: number | null;
  canvasId: string;
  agentId?: string | null;
}

export interface DeleteCanvas {
  expectedRevision?: number | null;
  canvasId: string;
  agentId?: string | null;
}

export interface DeletedCanvas {
  /** Always true. */
  ok: boolean;
  canvasId: string;
  /** False if there was none. */
  deleted: boolean;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

export interface RunAction {
  actionId: string;
  input?: JsonObject | null;
  expectedRevision?: number | null;
  requestId?: string | null;
  hasGesture?: boolean;
  canvasId: string;
  agentId?: string | null;
}

export interface ActionCompleted {
  status: "completed";
  eventId: string;
  revision: number;
  ok?: boolean;
  result?: Json;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

/** Rejected by a person, or not confirmed in time. */
export interface ActionRefused {
  status: "refused";
  eventId: string;
  revision: number;
  ok?: boolean;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

/** By `canvas.cancel`. */
export interface ActionCancelled {
  status: "cancelled";
  eventId: string;
  revision: number;
  ok?: boolean;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

export interface ActionAsked {
  status: "needs_confirmation";
  confirmationId: string;
  /** What exactly will run; a person confirms this and nothing else. */
  resolved: JsonObject;
  ok?: boolean;
  /** `another`: only another person than who asked may approve. */
  approval?: string;
  /** The person who asked, or who answers for the program that did. */
  askedBy?: string;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

export interface Confirmation {
  confirmationId: string;
  approve: boolean;
  agentId?: string | null;
}

export interface CancelAction {
  eventId: string;
  onlyRunning?: boolean;
  canvasId: string;
  agentId?: string | null;
}

/** `weakenedTools` and `createdAt` are as the person has seen them; else nothing is accepted. */
export interface AcceptSpec {
  revision: number;
  weakenedTools?: Record<string, string> | null;
  createdAt?: number | null;
  canvasId: string;
  agentId?: string | null;
}

/** A page of confirmations, newest first; `before` is `next` of the page before. */
export interface ListConfirmations {
  before?: string | null;
  limit?: number;
  canvasId: string;
  agentId?: string | null;
}

export interface ConfirmationPage {
  confirmations: PendingConfirmation[];
  /** Cursor of the next page; absent on the last. */
  next?: string;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

export interface PendingConfirmation {
  eventId: string;
  canvasId: string;
  actionId: string;
  /** asked, running, completed, failed or refused */
  status: string;
  actor: Actor;
  tool?: string;
  confirmedBy?: string;
  requestId?: string;
  revision?: number;
  /** Milliseconds since 1970. */
  askedAt?: number;
  /** Milliseconds since 1970. */
  startedAt?: number;
  /** Milliseconds since 1970. */
  endedAt?: number;
  error?: ErrorOfAction;
  confirmationId: string;
  resolved: JsonObject;
  /** Where its tool runs, in words. */
  runsOn?: string;
  destructive?: boolean;
  /** `another`: only another person than who asked may approve. */
  approval?: string;
  /** The person who asked, or who answers for the program that did. */
  askedBy?: string;
  /** False: the caller asked, and another person must approve. */
  mayApprove?: boolean;
}

/** The starter of an execution: the client of a person, an agent in a session, or the host. */
export interface Actor {
  accountId: string;
  /** user, agent, service or node */
  kind: string;
  name: string;
  clientId: string;
  /** client or refresh */
  trigger: string;
  userId?: string;
  /** The person who answers for a program. */
  onBehalfOf?: string;
}

export interface ListRecords {
  status?: ExecutionStatus | null;
  before?: string | null;
  limit?: number;
  canvasId: string;
  agentId?: string | null;
}

export type ExecutionStatus = "asked" | "completed" | "failed" | "refused" | "running";

export interface RecordPage {
  records: ActionRecord[];
  /** Cursor of the next page; absent on the last. */
  next?: string;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

/** An execution. Its result is not part of it: `saveAs` stores that in the state. */
export interface ActionRecord {
  eventId: string;
  canvasId: string;
  actionId: string;
  /** asked, running, completed, failed or refused */
  status: string;
  actor: Actor;
  tool?: string;
  confirmedBy?: string;
  requestId?: string;
  revision?: number;
  /** Milliseconds since 1970. */
  askedAt?: number;
  /** Milliseconds since 1970. */
  startedAt?: number;
  /** Milliseconds since 1970. */
  endedAt?: number;
  error?: ErrorOfAction;
}

/** With `version`, only that one is returned, with its spec and the list of its assets. With `path` too, only that asset of the version, with its content. */
export interface ListVersions {
  version?: number | null;
  path?: string | null;
  before?: number | null;
  limit?: number;
  onlyAccepted?: boolean;
  canvasId: string;
  agentId?: string | null;
}

/** A page of versions with `current`; one version; or, from `canvasId` on, one asset of a version. */
export interface VersionsResult {
  current?: CanvasVersion;
  versions?: CanvasVersion[];
  /** Cursor of the next page; absent on the last. */
  next?: number;
  canvasId?: string;
  version?: number;
  path?: string;
  size?: number;
  mediaType?: string;
  text?: string;
  base64?: string;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

export interface CanvasVersion {
  version: number;
  /** The last revision with this content. */
  revision: number;
  title: string;
  ownerSessionKey: string;
  accepted: boolean;
  /** Milliseconds since 1970. */
  at?: number;
  writtenBy?: CanvasAuthor;
  /** Absent if it is not known. */
  changed?: ChangedPart[];
  /** How many `changed` does not name. */
  moreChanges?: number;
  /** The version that was restored. */
  restored?: number;
  /** If the params name a version. */
  spec?: JsonObject;
  /** If the params name a version. */
  assets?: AssetView[];
}

export interface ChangedPart {
  /** Such as `spec.actions.save`, or the path of an asset. */
  path: string;
  /** added, removed or changed */
  change: string;
}

export interface AssetView {
  path: string;
  size: number;
  mediaType: string;
}

export interface RestoreCanvas {
  canvasId: string;
  agentId?: string | null;
  version: number;
  expectedRevision?: number | null;
}

/** `was` is the value that the caller last saw; nothing is written if the state has another value. */
export interface EnterInput {
  path: string;
  value: Json;
  was?: Json;
  expectedRevision?: number | null;
  canvasId: string;
  agentId?: string | null;
}

export interface ReportPage {
  what: "kind" | "nonce" | "rate" | "size" | "source" | "stop";
  detail?: string;
  count?: number;
  canvasId: string;
  agentId?: string | null;
}

export interface ReportedPage {
  canvasId: string;
  reported: boolean;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

/** `target` is a word of GSV; a view is always of the client that opens it. */
export interface OpenCanvas {
  clientId?: string | null;
  target?: Json;
  canvasId: string;
  agentId?: string | null;
}

export interface OpenedCanvas {
  /** Always true. */
  ok: boolean;
  canvasId: string;
  viewId: string;
  viewUrl: string;
  revision: number;
  lastSeq: number;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

export interface CloseCanvas {
  clientId?: string | null;
  target?: Json;
  viewId?: string | null;
  canvasId: string;
  agentId?: string | null;
}

export interface ClosedCanvas {
  /** Always true. */
  ok: boolean;
  canvasId: string;
  /** The ids of the closed views. */
  closed: string[];
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

export interface Subscribe {
  afterSeq?: number | null;
  canvasId: string;
  agentId?: string | null;
}

export interface CanvasSubscription {
  canvasId: string;
  subscribed: boolean;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

export interface PutAsset {
  path: string;
  canvasId: string;
  agentId?: string | null;
  text?: string | null;
  base64?: string | null;
  expectedRevision?: number | null;
}

export interface StoredAsset {
  canvasId: string;
  path: string;
  size: number;
  mediaType: string;
  revision: number;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

export interface NamedAsset {
  path: string;
  canvasId: string;
  agentId?: string | null;
}

export interface AssetContent {
  canvasId: string;
  path: string;
  size: number;
  mediaType: string;
  revision: number;
  text?: string;
  /** The content, if it is not UTF-8. */
  base64?: string;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

/** A page of a list of one canvas; `after` is `next` of the page before. */
export interface ListOfCanvas {
  after?: string | null;
  limit?: number;
  canvasId: string;
  agentId?: string | null;
}

export interface AssetPage {
  canvasId: string;
  assets: AssetView[];
  revision: number;
  /** Cursor of the next page; absent on the last. */
  next?: string;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

export interface DeleteAsset {
  path: string;
  canvasId: string;
  agentId?: string | null;
  expectedRevision?: number | null;
}

export interface DeletedAsset {
  canvasId: string;
  path: string;
  deleted: boolean;
  revision: number;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

/** A page of a list; `after` is `next` of the page before. */
export interface ListItems {
  after?: string | null;
  limit?: number;
}

export interface ToolPage {
  tools: ListedTool[];
  /** Cursor of the next page; absent on the last. */
  next?: string;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

export interface ListedTool {
  name: string;
  description: string;
  /** A JSON schema. */
  inputSchema: JsonObject;
  annotations: HintsOfTool;
}

export interface HintsOfTool {
  readOnlyHint: boolean;
  idempotentHint: boolean;
  destructiveHint: boolean;
}

export interface InvokeTool {
  tool: string;
  args?: JsonObject | null;
}

export interface InvokedTool {
  /** Always true. */
  ok: boolean;
  result: Json;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

export interface NodePage {
  nodes: ListedNode[];
  /** Cursor of the next page; absent on the last. */
  next?: string;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

export interface ListedNode {
  nodeId: string;
  platform: string;
  version: string;
  /** The full names of its tools. */
  tools: string[];
  /** Milliseconds since 1970. */
  connectedAt?: number;
  /** Of the machine of Easel: how commands are isolated. */
  bash?: string;
}

export interface NoParams {
}

/** Empty: the connection carries answers. */
export interface Pong {
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

export interface Connect {
  client: ClientInfo;
  minProtocol?: number;
  maxProtocol?: number;
  auth?: Auth | null;
  tools?: Json;
  nodeRuntime?: Json;
}

export interface ClientInfo {
  id: string;
  version?: string;
  platform?: string;
  mode?: string;
}

export interface Auth {
  token?: string | null;
}

/** The answer to `connect`: what the connection may send, and what it gets. */
export interface Hello {
  type: "hello-ok";
  protocol: number;
  server: ServerInfo;
  features: Features;
  /** In node mode. */
  limits?: GatewayNodeLimits;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

export interface ServerInfo {
  version: string;
  connectionId: string;
}

export interface Features {
  methods: string[];
  events: string[];
}

export interface GatewayNodeLimits {
  frameBytes: number;
  resultBytes: number;
}

/** Sent by a node: exactly one of `result` and `error`. */
export interface ToolResultParams {
  callId: string;
  result?: Json;
  error?: string | null;
}

/** The answer to a node's result or progress. */
export interface Receipt {
  /** Always true. */
  ok: boolean;
  /** The call had ended already. */
  dropped?: boolean;
  /** What was ignored in the request, and what may be wrong in a spec. */
  warnings?: string[];
}

export interface ToolProgress {
  callId: string;
  text: string;
}

export interface MessageDelta {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  /** The same for all deltas of a message, over all attempts. */
  message_id: string;
  text: string;
  /** Of the worker. A higher one begins the unfinished step again. */
  attempt?: number;
  /** Absent: 1. A higher one begins the unfinished step again. */
  try?: number;
  /** Of the user's message, in the thread only. */
  role?: "user";
  /** Of the user's message. */
  run_id?: string;
  /** The markers of the references in `text`; with `truncated`, first that of all the text. */
  attachments?: Marker[] | Marker;
}

export interface MessageCompleted {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  role: "assistant" | "user";
  message_id: string;
  run_id: string;
  text: string;
  /** completed, failed or cancelled */
  status?: string;
  /** If the run failed. */
  error?: string | Marker;
  /** `text` is only the beginning. */
  truncated?: boolean;
  /** The markers of the references in `text`; with `truncated`, first that of all the text. */
  attachments?: Marker[] | Marker;
  /** An update of a document, which only the model gets. */
  hidden?: boolean;
  /** Who changed the document; of an update. */
  author?: string;
}

export interface ToolCallPayload {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  call_id: string;
  run_id: string;
  tool: string;
  args: Json;
}

export interface ToolResultPayload {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  call_id: string;
  run_id: string;
  tool: string;
  result?: Json;
  /** Instead of `result`, if the call failed. */
  error?: Json;
}

export interface ReasoningDelta {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  message_id: string;
  text: string;
  attempt?: number;
  try?: number;
  /** The markers of the references in `text`; with `truncated`, first that of all the text. */
  attachments?: Marker[] | Marker;
}

/** An answer of the model, with what a later worker needs to send it back. */
export interface StepCompleted {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  /** From 1. */
  step: number;
  text: string | Marker;
  calls: StepCall[] | Marker;
  usage?: TokenUsage;
  provider?: ProviderAnswer;
  /** Digest of what `provider` depends on. */
  prefix?: string;
  /** Of the first step. */
  context?: ContextOfRun;
  /** The system prompt and the tools as JSON text; of the first step. */
  instructions?: string | Marker;
}

export interface StepCall {
  call_id: string;
  tool: string;
  args: Json;
}

export interface TokenUsage {
  input_tokens: number;
  output_tokens: number;
  /** Part of the input. */
  cached_tokens: number;
  /** Part of the output. */
  reasoning_tokens: number;
}

/** The answer in the provider's own form. */
export interface ProviderAnswer {
  name: string;
  data: Json;
}

/** Where the conversation of a run begins. Absent members: with the whole session. */
export interface ContextOfRun {
  first_run_id?: string;
  /** The revisions of documents that were given whole. */
  documents?: JsonObject;
}

export interface RunStart {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  attempt: number;
}

/** The actor that caused an event. */
export interface ProvenanceOfEvent {
  /** person, agent, service or node */
  kind: string;
  /** A person's user id, otherwise the name of the agent, service or node. */
  agent_id: string;
  /** The node of the run, or the action. */
  node_id: string;
  /** The run that caused the event or, on a canvas, the operation. */
  run_id: string;
  edge_id?: string;
}

export interface RunStatusPayload {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  /** completed, failed or cancelled */
  status: string;
  /** If the run failed. */
  error?: string | Marker;
}

export interface WhiteboardWrite {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  key: string;
  value: Json;
  version: number;
  source_node_id: string;
}

export interface BlackboardWrite {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  key: string;
  value: Json;
  version: number;
  source_node_id: string;
  edge_id: string;
}

export interface RunDone {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  /** completed, failed or cancelled */
  status: string;
  /** If the run failed. */
  error?: string | Marker;
  /** Of all steps. */
  usage?: TokenUsage;
}

export interface CanvasCreated {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  /** The agent that has the canvas; absent if the canvas is deleted. */
  agentId?: string;
  canvasId: string;
  revision: number;
  title: string;
}

export interface CanvasUpdated {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  /** The agent that has the canvas; absent if the canvas is deleted. */
  agentId?: string;
  canvasId: string;
  revision: number;
  /** JSON pointers into the state (empty: all of it), and `$spec`, `$title`, `$assets/…`. */
  changedPaths: string[];
}

export interface CanvasViewUpdated {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  /** The agent that has the canvas; absent if the canvas is deleted. */
  agentId?: string;
  canvasId: string;
  revision: number;
  viewId: string;
  clientId: string;
  /** The person whose view it is, or who answers for the program. */
  userId?: string;
  status: "closed" | "opened";
  /** How many are open now. */
  views: number;
}

export interface CanvasSnapshotTaken {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  /** The agent that has the canvas; absent if the canvas is deleted. */
  agentId?: string;
  canvasId: string;
  revision: number;
  artifact_id: string;
  media_payload: MediaPayload;
}

export interface MediaPayload {
  sidecars: Sidecar[];
}

export interface Sidecar {
  uri: string;
  artifact_id: string;
  mime_type: string;
  size_bytes: number;
  checksum: string;
}

export interface ActionAskedPayload {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  /** The agent that has the canvas; absent if the canvas is deleted. */
  agentId?: string;
  canvasId: string;
  revision: number;
  actionId: string;
  /** Of the execution, the same in all its events. */
  eventId: string;
  actor: Actor;
  tool?: string;
  confirmationId: string;
  /** Milliseconds since 1970. */
  askedAt: number;
  /** Of what exactly waits for a person's confirmation. */
  digest: string;
  /** `another`: only another person than who asked may approve. */
  approval?: string;
}

export interface ActionStarted {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  /** The agent that has the canvas; absent if the canvas is deleted. */
  agentId?: string;
  canvasId: string;
  revision: number;
  actionId: string;
  /** Of the execution, the same in all its events. */
  eventId: string;
  actor: Actor;
  tool?: string;
  /** Milliseconds since 1970. */
  startedAt: number;
}

export interface ActionOutput {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  /** The agent that has the canvas; absent if the canvas is deleted. */
  agentId?: string;
  canvasId: string;
  revision: number;
  actionId: string;
  /** Of the execution, the same in all its events. */
  eventId: string;
  text: string;
  /** The rest of the output is not shown. */
  cut?: boolean;
}

export interface ActionFinished {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  /** The agent that has the canvas; absent if the canvas is deleted. */
  agentId?: string;
  canvasId: string;
  revision: number;
  actionId: string;
  /** Of the execution, the same in all its events. */
  eventId: string;
  actor: Actor;
  tool?: string;
  /** Milliseconds since 1970. */
  endedAt: number;
  /** Milliseconds since 1970. */
  startedAt?: number;
  /** Where in the state its result is. */
  saveAs?: string | Marker;
}

export interface ActionFailedPayload {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  /** The agent that has the canvas; absent if the canvas is deleted. */
  agentId?: string;
  canvasId: string;
  revision: number;
  actionId: string;
  /** Of the execution, the same in all its events. */
  eventId: string;
  actor: Actor;
  tool?: string;
  /** Milliseconds since 1970. */
  endedAt: number;
  /** Milliseconds since 1970. */
  startedAt?: number;
  error: ErrorOfAction;
}

export interface ActionRefusedPayload {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  /** The agent that has the canvas; absent if the canvas is deleted. */
  agentId?: string;
  canvasId: string;
  revision: number;
  actionId: string;
  /** Of the execution, the same in all its events. */
  eventId: string;
  actor: Actor;
  tool?: string;
  /** Milliseconds since 1970. */
  endedAt: number;
  /** The name of the person. */
  refusedBy?: string;
  /** If no person answered. */
  reason?: string;
}

export interface RefreshFailed {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  /** The agent that has the canvas; absent if the canvas is deleted. */
  agentId?: string;
  canvasId: string;
  revision: number;
  refreshId: string;
  actionId: string;
  error: ErrorOfAction;
  /** In a row. */
  failures: number;
  retryInMs: number;
}

export interface RefreshRecovered {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  /** The agent that has the canvas; absent if the canvas is deleted. */
  agentId?: string;
  canvasId: string;
  revision: number;
  refreshId: string;
  actionId: string;
}

export interface DocumentChanged {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  /** The agent that has the canvas; absent if the canvas is deleted. */
  agentId?: string;
  canvasId: string;
  revision: number;
  revision_id: string;
  canvas_epoch: number;
  author: DocumentAuthor;
}

export interface DocumentAuthor {
  kind: string;
  id: string;
  run_id?: string;
}

export interface LeaseChanged {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  /** The agent that has the canvas; absent if the canvas is deleted. */
  agentId?: string;
  canvasId: string;
  revision: number;
  canvas_epoch: number;
  /** Null: the document is free. */
  lease: LeaseHolder | null;
  reason: string;
}

export interface LeaseHolder {
  run_id: string;
  expires_at: string;
}

/** A session was created. */
export interface SessionCreated {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  session_id: string;
  /** The key of the session, `agent:{agentId}:{name}`. */
  key: string;
  title: string | null;
}

/** The title of a session was changed. */
export interface SessionRenamed {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  session_id: string;
  /** The key of the session, `agent:{agentId}:{name}`. */
  key: string;
  title: string | null;
}

/** A session was deleted. */
export interface SessionRemoved {
  /** By the event type; a message that is hidden is internal. */
  visibility: "internal" | "public" | "system";
  provenance: ProvenanceOfEvent;
  session_id: string;
  /** The key of the session, `agent:{agentId}:{name}`. */
  key: string;
  title: string | null;
}

export interface EndedSubscription {
  canvasId: string;
  /** DELETED, RESUME, or the name of an error; resume after the last `seq`. */
  reason: string;
}

export interface NodeCall {
  callId: string;
  tool: string;
  args: JsonObject;
  /** Secrets, as environment variables of the tool. */
  env?: Record<string, string>;
}

export interface CancelledNodeCall {
  callId: string;
}

export interface ErrorDetail {
  /** Number of the error in the gateway protocol. */
  code: number;
  /** Name of the error; see the list of errors. */
  name: string;
  message: string;
  details?: JsonObject;
}

export interface ErrorAnswer {
  error: ErrorDetail;
}

export interface RefusedRequest {
  /** Number of the error in the gateway protocol. */
  code: number;
  /** Name of the error; see the list of errors. */
  name: string;
  message: string;
  details?: JsonObject;
  /** The same request may succeed later. */
  retryable?: boolean;
}

export interface NewChatMessage {
  type: "message";
  text: string;
  idempotency_key?: string | null;
}

/** Cancels the runs of the thread. */
export interface Cancel {
  type: "cancel";
}

/** Asks for a `pong`: whether the connection still carries an answer. */
export interface Ping {
  type: "ping";
}

/** The answer to a refused frame; the connection stays open. */
export interface ChatError {
  type: "error";
  error: ErrorDetail;
}

/** The answer to a frame with unknown members, which were ignored. */
export interface ChatWarnings {
  type: "warnings";
  warnings: string[];
}

/** The answer to a `ping`. */
export interface ChatPong {
  type: "pong";
}

export interface StartRun {
  /** A conversation. An unknown session is created by its first run. */
  session_id: string;
  /** The task of the agent. */
  message: string;
  /** Requests with the same key return the same run. */
  idempotency_key?: string | null;
}

export interface RunStarted {
  run_id: string;
  status: string;
}

export interface ListRuns {
  session_id?: string | null;
  /** Comma separated: queued, running, completed, failed, cancelled. */
  statuses?: string;
  limit?: number;
  /** `next` of the previous page. */
  before?: number | null;
}

export interface RunPage {
  runs: RunView[];
  next?: number | null;
}

export interface RunView {
  run_id: string;
  session_id: string;
  /** queued, running, completed, failed or cancelled */
  status: string;
  /** The message, with `[[artifact:ID]]` in place of each run of Base64 over 2 KB. */
  input_text: string;
  created_at: string;
  attempt: number;
  max_attempts: number;
  last_seq: number;
  started_at?: string | null;
  finished_at?: string | null;
  cancel_requested_at?: string | null;
  error_message?: string | null;
  /** The person who started it, or answers for the program that did. Absent: Easel. */
  started_by?: string;
  /** The markers of the references in `input_text`. */
  attachments?: Marker[];
  /** `input_text` is its beginning; GET /api/runs/{run_id} has the complete text. */
  truncated?: boolean;
  /** Tokens of an ended run; only in GET /api/runs/{run_id}. */
  usage?: TokenUsage | null;
}

export interface StreamQuery {
  /** Resume after this event; the Last-Event-ID header takes precedence. */
  last_event_id?: string | null;
  /** 1 includes internal events, for persons who are admin of the account. */
  debug?: string;
}

export interface WriteWhiteboard {
  key: string;
  /** Any JSON. */
  value: Json;
  /** The node that writes; it becomes `provenance.node_id`. */
  source_node_id: string;
  /** Write only if the key has this version; 0: only if it does not exist. */
  expected_version?: number | null;
  /** Must be absent or `global`: the whiteboard has no edges. */
  edge_id?: string | null;
}

export interface BoardWritten {
  key: string;
  /** Starts at 1 and grows by one with every write. */
  version: number;
  /** The sequence number of the write's event in the run's log. */
  seq: number;
  created_at: string;
  updated_at: string;
  provenance: BoardAuthor;
  edge_id?: string | null;
}

export interface BoardAuthor {
  /** The user id of a person, or the name of a service or an agent. */
  agent_id: string;
  node_id: string;
  run_id: string;
  /** `person`, `agent`, `service` or `node`. */
  kind: string;
  edge_id?: string | null;
}

export interface ReadBoard {
  /** Only this value. */
  key?: string | null;
  /** Only this edge of the blackboard; must be given with a key. */
  edge_id?: string | null;
  /** `next` of the previous page. */
  after?: string | null;
  limit?: number;
}

/** The response to a read: the fields of one entry if the query has `key`, otherwise `entries`. */
export interface BoardView {
  entries?: BoardEntry[];
  /** Missing on the last page of the entries. */
  next?: string;
  key?: string;
  value?: Json;
  version?: number;
  created_at?: string;
  updated_at?: string;
  provenance?: BoardAuthor;
  edge_id?: string;
}

export interface BoardEntry {
  key: string;
  value: Json;
  version: number;
  created_at: string;
  updated_at: string;
  provenance: BoardAuthor;
  edge_id?: string | null;
}

export interface WriteBlackboard {
  key: string;
  /** Any JSON. */
  value: Json;
  /** The node that writes; it becomes `provenance.node_id`. */
  source_node_id: string;
  /** Write only if the key has this version; 0: only if it does not exist. */
  expected_version?: number | null;
  /** The handover that the value belongs to. */
  edge_id: string;
}

export interface ArtifactView {
  artifact_id: string;
  uri: string;
  size: number;
  media_type: string;
  sha256: string;
}

export interface CreateSession {
  /** A name for the session; without one it is generated. */
  session_id?: string | null;
  title?: string | null;
}

export interface SessionView {
  session_id: string;
  /** agent:{agentId}:{name} */
  key: string;
  title: string | null;
  created_at: string;
  last_message_at: string;
  /** Sequence number of the newest event of its thread. */
  last_seq: number;
  active_run_id?: string | null;
  /** The person who made it, who may delete it as an admin may. Absent: Easel itself. */
  created_by?: string;
}

export interface ListSessions {
  /** Text to search for in titles and ids. */
  search?: string;
  limit?: number;
  /** `next` of the previous page. */
  before?: string | null;
}

export interface SessionPage {
  sessions: SessionView[];
  next?: string | null;
}

export interface RenameSession {
  title: string;
}

export interface ListMessages {
  limit?: number;
  /** `next` of the previous page. */
  before?: number | null;
}

export interface MessagePage {
  messages: MessageView[];
  next?: number | null;
}

export interface MessageView {
  message_id: string;
  run_id: string;
  role: string;
  /** The text, with `[[artifact:ID]]` in place of each run of Base64 over 2 KB. */
  text: string;
  /** Its sequence number in the thread. */
  seq: number;
  created_at: string;
  metadata: MessageMetadata;
  status?: string;
  error?: string;
  /** The markers of the references in the text. */
  attachments?: Marker[];
}

export interface MessageMetadata {
  visibility: string;
}

export interface ChatMessage {
  /** The task of the agent. */
  message: string;
  idempotency_key?: string | null;
}

export interface SnapshotView {
  artifact_id: string;
  uri: string;
  seq: number;
}

export interface DocumentView {
  canvas_id: string;
  /** The SHA-256 of a text. */
  revision_id: string;
  /** Grows when a person acts; older leases are invalid. */
  canvas_epoch: number;
  /** The revision of the newest version, if there is one. */
  version_revision_id?: string;
  /** Present while an agent has the lease. */
  lease?: LeaseView;
  text: string;
}

export interface LeaseView {
  /** The run whose agent edits the document. */
  run_id: string;
  expires_at: string;
}

export interface PutDocument {
  text: string;
  /** The revision that was edited; if it is not the current one, the answer is 409. Required in a team. */
  base_revision_id?: string | null;
}

export interface SavedDocument {
  canvas_id: string;
  /** The SHA-256 of a text. */
  revision_id: string;
  /** Grows when a person acts; older leases are invalid. */
  canvas_epoch: number;
  /** The revision of the newest version, if there is one. */
  version_revision_id?: string;
  /** Present while an agent has the lease. */
  lease?: LeaseView;
}

export interface DocumentVersionsQuery {
  limit?: number;
  /** `next` of the previous page. */
  before?: number | null;
}

export interface VersionPage {
  versions: VersionView[];
  next?: number | null;
}

export interface VersionView {
  version: number;
  revision_id: string;
  author: VersionAuthor;
  created_at: string;
  /** Bytes of UTF-8. */
  size: number;
}

export interface VersionAuthor {
  /** `person` or `assistant` */
  kind: string;
  id: string;
  run_id?: string;
}

export interface CompareRevisions {
  /** A revision; by default the newest version. */
  from?: string | null;
  /** A revision; by default the current text. */
  to?: string | null;
}

export interface DifferenceView {
  from: string | null;
  to: string;
  /** A unified diff; empty if the texts are equal. */
  diff: string;
}

export interface RestoreDocument {
  /** The SHA-256 of a text. */
  revision_id: string;
}

export interface PromotedView {
  canvas_id: string;
  /** The SHA-256 of a text. */
  revision_id: string;
  /** Grows when a person acts; older leases are invalid. */
  canvas_epoch: number;
  /** The revision of the newest version, if there is one. */
  version_revision_id?: string;
  /** Present while an agent has the lease. */
  lease?: LeaseView;
  /** False if the newest version has the same text. */
  promoted: boolean;
}

export interface ListTools {
  /** `next` of the previous page. */
  after?: string | null;
  limit?: number;
}

export interface ToolList {
  tools: ToolView[];
  next?: string | null;
}

export interface ToolView {
  name: string;
  description: string;
  /** The JSON Schema of its arguments. */
  schema: JsonObject;
  annotations: HintsOfTool;
  runs_on: string;
}

export interface SettingsView {
  /** scripted, openai-chat, openai-responses, gemini or anthropic */
  provider: string;
  model: string;
  /** Masked: its ends, or `set`; null: none. */
  api_key: string | null;
  /** null: the provider's own address. */
  base_url: string | null;
  /** null: the model's default. */
  reasoning_effort: string | null;
  token_budget: number;
  /** anyone or another; without effect in your own account. */
  approval_by: string;
  sources: SettingSources;
  /** What to do if a key is not used. */
  note?: string;
}

/** Where each value comes from: user, host or default. */
export interface SettingSources {
  provider: string;
  model: string;
  api_key: string;
  base_url: string;
  reasoning_effort: string;
  token_budget: string;
  approval_by: string;
}

/** The settings to change. A setting that is not named stays; null clears one. */
export interface ChangeSettings {
  provider?: string | null;
  model?: string | null;
  /** Stored encrypted; sent only to the server it was set for. */
  api_key?: string | null;
  base_url?: string | null;
  /** none, low, medium or high */
  reasoning_effort?: string | null;
  /** Tokens of the conversation that a model call is given. */
  token_budget?: number | null;
  /** Of a team. anyone; or another: the person who asked for a call cannot approve it. */
  approval_by?: string | null;
}

export interface ModelCheckView {
  ok: boolean;
  /** Which model answered, or what is wrong and what to do. */
  text: string;
}

export interface ListSecrets {
  limit?: number;
  /** `next` of the previous page. */
  after?: string | null;
}

export interface SecretPage {
  secrets: SecretView[];
  next?: string | null;
}

export interface SecretView {
  name: string;
  created_at: string;
  updated_at: string;
}

export interface SetSecret {
  /** 6 characters to 32 KB. Stored encrypted, and never returned. */
  value: string;
}

export interface ProviderList {
  providers: ProviderView[];
}

export interface ProviderView {
  provider: string;
  /** null: not connected. */
  connection: ConnectionView | null;
}

export interface ConnectionView {
  connected_at: string;
  /** The person who signed it in. */
  connected_by: string;
  scopes: string;
  /** When the access token is refreshed; null: never. */
  expires_at: string | null;
  /** The provider has ended it; connect it again. */
  must_reconnect: boolean;
}

export interface FlowStarted {
  /** Open it in the browser that is signed in to Easel. */
  authorize_url: string;
}

export interface Me {
  /** person, or service for a program */
  kind: string;
  name: string;
  operator: boolean;
  /** The account of this request. */
  account: string;
  /** The role in it. */
  role: string;
  /** What `Easel-Account` may name; a token reaches its own only. */
  accounts: AccountView[];
}

export interface AccountView {
  account: string;
  /** person or team */
  kind: string;
  role: string;
}

export interface ChangePassword {
  new_password: string;
  /** Needed if a password is set. */
  old_password?: string | null;
}

export interface ListPeople {
  limit?: number;
  /** `next` of the previous page. */
  after?: string | null;
}

export interface MemberPage {
  members: MemberView[];
  next?: string | null;
}

export interface MemberView {
  name: string;
  display_name: string | null;
  role: string;
}

export interface SetMember {
  /** viewer, member or admin */
  role: string;
}

export interface AddPerson {
  /** 1 to 63 characters of a-z, 0-9 and `-`. Never given again. */
  name: string;
  /** Whether the person may do this too. */
  operator?: boolean;
}

export interface PersonAdded {
  name: string;
  /** A token of the person; not shown again. */
  token: string;
  /** A link that sets a password, once, for 7 days. */
  invitation_url: string;
}

export interface PersonPage {
  people: PersonView[];
  next?: string | null;
}

export interface PersonView {
  name: string;
  display_name: string | null;
  operator: boolean;
  created_at: string;
  disabled_at: string | null;
}

export interface ChangePerson {
  disabled: boolean;
  /** Becomes admin of the teams that would be left without one. Only for operators. */
  new_admin?: string | null;
}

export interface DeletePerson {
  /** Becomes admin of the teams that would be left without one. Only for operators. */
  new_admin?: string | null;
}

export interface Invited {
  name: string;
  invitation_url: string;
}

export interface AddTeam {
  /** 1 to 63 characters of a-z, 0-9 and `-`. Never given again. */
  name: string;
  /** The person who is its first admin. */
  admin: string;
}

export interface TeamAdded {
  name: string;
}

export interface TeamPage {
  teams: TeamView[];
  next?: string | null;
}

export interface TeamView {
  name: string;
  created_at: string;
  member_count: number;
}

export interface CreateToken {
  kind: "node" | "service" | "user";
  /** The most that the token may do; by default as much as you. */
  role?: "admin" | "member" | "viewer" | null;
  name?: string | null;
  /** The only node that may use a token of kind node. */
  node_id?: string | null;
  days?: number | null;
}

export interface TokenView {
  token_id: string;
  kind: string;
  /** The person who acts with it, or who made it for a program. */
  user_id: string;
  role: string;
  name: string;
  created_at: string;
  node_id?: string | null;
  expires_at?: string | null;
  last_used_at?: string | null;
  /** The secret, in the answer to its creation only. */
  token?: string;
}

export interface TokenList {
  tokens: TokenView[];
}

export interface ListAudit {
  /** Only records of this action, such as sign_in.failed. */
  action?: string | null;
  /** ops: the state of the system; audit: actions of principals, and refusals. */
  storage_class?: "audit" | "ops" | null;
  /** From this time on, such as 2026-11-15T09:00:00Z. */
  since?: string | null;
  /** Before this time. */
  until?: string | null;
  /** `next` of the previous page. */
  before?: number | null;
  limit?: number;
}

export interface AuditPage {
  records: AuditView[];
  next?: number | null;
}

export interface AuditView {
  seq: number;
  at: string;
  storage_class: string;
  action: string;
  actor: Record<string, string>;
  metadata: Record<string, string>;
  /** SHA-256 of the previous hash, a line feed and the record. */
  hash: string;
  subject?: string;
  details?: JsonObject;
}
