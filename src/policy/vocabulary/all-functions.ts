import type { PolicyExchange } from '../exchange/policy-exchange.ts'
import { ENTRY_STEPS, type Price, type Prices } from '../expression/account.ts'
import type { ExpressionFunction } from '../expression/expression-function.ts'
import { DIGEST_FUNCTIONS } from './digests.ts'
import { ENCODING_FUNCTIONS } from './encodings.ts'
import { LIST_FUNCTIONS } from './lists.ts'
import { NETWORK_FUNCTIONS } from './network.ts'
import { REQUEST_FUNCTIONS } from './requests.ts'
import { SECRET_FUNCTIONS } from './secrets.ts'
import { TEXT_FUNCTIONS } from './text.ts'
import { TIME_FUNCTIONS } from './time.ts'

const price = (call: number, kib = 0, item = 0): Price => ({ call, kib, item })
const deep = (call: number, kib: number, item: number): Price => ({ call, kib, item, isDeep: true })

/** Prices of digests, by 1,024 bytes of text. */
const DIGESTS: Prices = {
  md5: price(69, 18),
  sha1: price(37, 20),
  sha256: price(37, 20),
  sha512: price(69, 18),
  crc32: price(18, 14),
  crc64: price(18, 86),
  xxhash64: price(30, 328),
}

const GETTERS = [
  ...['getFullYear', 'getMonth', 'getDate', 'getDayOfMonth', 'getDayOfWeek', 'getDayOfYear'],
  ...['getHours', 'getMinutes', 'getSeconds', 'getMilliseconds'],
]

const TIMES = ['timestamp', 'duration']

const MAPS = [
  ...['req.headers', 'req.trailers', 'req.cookies', 'req.url.query_params'],
  ...['res.headers', 'res.trailers', 'res.cookies'],
]
/** In heads; fields that have to be taken apart are paid once for all calls. */
const LOOK_UP = price(8, 10)
const TEST = price(5, 10)

/**
 * Prices of functions, in steps of about 70 ns: of a call, of 1,024 characters, of a list item. A language
 * function without a price costs a call of an operator, another function `DEFAULT_PRICE`. `npm run
 * bench:prices` measures all of them, and fails if a price is off by more than a factor of two.
 */
export const FUNCTION_PRICES: Prices = {
  '_==_': deep(4, 1, 0.9),
  '_!=_': deep(4, 1, 0.9),
  '@in(dyn,list)': deep(4, 1, 0.8),
  ...Object.fromEntries(
    ['int', 'uint', 'double'].map((key) => [`@in(${key},map)`, price(5, 0, ENTRY_STEPS)]),
  ),
  ...Object.fromEntries(
    ['_<_', '_<=_', '_>_', '_>=_'].flatMap((name) => [
      [`${name}(string,string)`, price(7, 3)],
      [`${name}(bytes,bytes)`, price(5, 40)],
      [`${name}(int,int)`, price(5)],
    ]),
  ),
  ...Object.fromEntries(
    TIMES.flatMap((time) => [
      ...['_<_', '_<=_', '_>_', '_>=_', '_-_'].map((name) => [
        `${name}(${time},${time})`,
        price(30),
      ]),
      [`_+_(${time},duration)`, price(30)],
      [`_+_(duration,${time})`, price(30)],
      [`_-_(${time},duration)`, price(30)],
    ]),
  ),
  '_+_(string,string)': price(8, 8),
  '_+_(bytes,bytes)': price(6, 3),
  '_+_(list,list)': price(6, 0, 2),
  // Much more than the digits suggest: the time grows with their square.
  'int(string)': price(6, 2_000),
  'uint(string)': price(10, 2_000),
  'double(string)': price(6, 10),
  'bool(string)': price(5, 2),
  'bytes(string)': price(10, 6),
  'string(int)': price(7),
  'string(bytes)': price(12, 10),
  'string(timestamp)': price(38),
  'string(duration)': price(20),
  'string(double)': price(11),
  'timestamp(string)': price(80, 2),
  'timestamp(int)': price(40),
  'duration(string)': price(39),
  'duration(int)': price(20),

  contains: price(6, 3),
  startsWith: price(4),
  endsWith: price(4),
  indexOf: price(4, 6),
  lastIndexOf: price(4, 8),
  charAt: price(4),
  substring: price(4),
  'size(string)': price(4, 4),
  '.size(string)': price(4, 4),
  matches: price(24),
  lower: price(5, 6),
  upper: price(5, 6),
  lowerAscii: price(6, 6),
  upperAscii: price(6, 6),
  trim: price(6, 3),
  reverse: price(14, 280),
  split: price(16, 16),
  replace: price(12, 80),
  join: price(16, 6, 1.4),
  format: deep(10, 20, 2.4),
  'strings.quote': price(10, 180),

  'lists.range': price(10),
  slice: price(12, 0, 0.9),
  flatten: price(4),
  distinct: deep(10, 120, 5),
  sort: deep(30, 60, 1.5),
  '@sort_by': deep(30, 60, 1.5),

  'base64.encode': price(14, 10),
  'base64.decode': price(14, 30),
  encodeBase64: price(14, 10),
  decodeBase64: price(14, 30),
  'basic_auth.encode': price(14, 25),
  'json.decode': price(13, 60),
  decodeJson: price(13, 60),
  isJson: price(9, 45),
  'json.encode': deep(19, 120, 3),
  encodeJson: deep(19, 120, 3),
  'queryString.decode': price(11, 400),
  decodeQueryString: price(11, 400),
  'queryString.encode': deep(16, 120, 3),
  encodeQueryString: deep(16, 120, 3),
  isQueryString: price(8, 40),
  'url.parse': price(41, 180),
  parseUrl: price(41, 180),
  'url.escape': price(8, 90),
  escapeUrl: price(8, 90),
  'url.unescape': price(8, 20),
  unescapeUrl: price(8, 20),
  isURL: price(11, 20),

  ...DIGESTS,
  ...Object.fromEntries(Object.entries(DIGESTS).map(([name, of]) => [`hash.${name}`, of])),

  inCidrRange: price(4),
  inCidrRanges: price(4, 0, 2),
  isPrivateIp: price(10),
  'rand.double': price(1),
  'rand.int()': price(2),
  'rand.int(int,int)': price(8),

  ...Object.fromEntries(GETTERS.map((name) => [`.${name}(timestamp)`, price(12)])),
  ...Object.fromEntries(GETTERS.map((name) => [`.${name}(timestamp,string)`, price(40)])),

  ...Object.fromEntries(MAPS.map((map) => [`@at:${map}`, LOOK_UP])),
  ...Object.fromEntries(MAPS.map((map) => [`@in:${map}`, TEST])),
  getReqHeader: LOOK_UP,
  hasReqHeader: TEST,
  getResHeader: LOOK_UP,
  hasResHeader: TEST,
  getQueryParam: LOOK_UP,
  hasQueryParam: TEST,
  getReqCookie: price(14),
  hasReqCookie: TEST,
  getResCookie: price(22),
  hasResCookie: TEST,

  'secrets.get': price(5),
}

/** All functions beyond the language. */
export const FUNCTIONS: readonly ExpressionFunction<PolicyExchange>[] = [
  ...TEXT_FUNCTIONS,
  ...LIST_FUNCTIONS,
  ...TIME_FUNCTIONS,
  ...ENCODING_FUNCTIONS,
  ...DIGEST_FUNCTIONS,
  ...NETWORK_FUNCTIONS,
  ...REQUEST_FUNCTIONS,
  ...SECRET_FUNCTIONS,
]
