import { randomInt } from 'node:crypto'

/** Colours, materials and qualities. */
const FIRST = words(`
  able agile airy alert alpine amber ample apt aqua arctic ardent azure balmy beige blue bold bonny boreal
  brave breezy brief bright brisk bronze brown calm candid canny cedar cheery chief chilly civic clean clear
  clever cobalt comfy cool copper coral cosmic cosy cream crimson crisp cubic curly cyan dandy dapper daring
  deep deft dense desert direct double dusky dusty eager early earthy east easy ebony elated elfin emerald
  epic equal exact fair fancy fast fine firm first flat fleet floral fluent fluid fond formal frank free
  fresh frosty full fuzzy gentle giant gilded glad glassy gleaming glossy golden good grand granite grassy
  great green grey handy happy hardy hazel hazy hearty honest humble icy ideal indigo ivory jade jolly jovial
  joyful jumbo just keen khaki kind lapis large late lavender leafy level light lilac lime limber linen lively
  local lofty loyal lucid lucky lunar magenta magic main maple marble mauve mellow merry mighty mild mint
  misty modern modest mossy native navy neat new nice nimble noble north novel oaken ochre olive onyx opal
  open orange ornate oval pale pastel patient pearl pine pink placid plain plum polar polite prime proper
  proud pure purple quick quiet rapid rare ready red regal rich ripe robust rosy round royal ruby rural russet
`)
/** Animals, plants and landscapes. */
const SECOND = words(`
  acorn agate alder anchor antler apple apricot arbor aspen aster atlas aurora badger bamboo basin bay beach
  beacon beaver beech beetle bell birch bison blossom bluff bobcat boulder branch breeze bridge brook buffalo
  bunting burrow cactus camel canary canoe canyon cape cardinal caribou castle cedar cherry cicada cliff
  cloud clover coast comet compass condor cougar cove coyote crane creek cricket crow crystal curlew cypress
  daisy dale deer delta desert dingo dolphin dove dune eagle echo egret elk elm ember falcon fawn feather
  fennel fern ferret field finch fjord flame flint flora forest fossil fox galaxy garden gazelle geyser gibbon
  ginger glacier glade glen goose gorge grove gull hamlet harbor hare harvest hawk hazel heath heather hedge
  heron hill hollow holly horizon ibex ibis iguana inlet iris island ivy jackal jaguar jasmine jay juniper
  kestrel kingfisher kite kiwi koala lagoon lake lantern lark laurel lemon lemur leopard lichen lily linden
  linnet lion llama lotus lynx magpie mango maple marble marlin marmot marsh marten meadow melon mesa meteor
  mole moon moose moss mountain myrtle narwhal nectar nest newt nutmeg oak oasis ocean orchard orchid oriole
`)
/** Without `l`, `o`, `0` and `1`, which are easily confused. */
const ALPHABET = 'abcdefghijkmnpqrstuvwxyz23456789'
const TAIL_LENGTH = 7

/** Bits of randomness in a label: too many names to try them all. */
export const RANDOM_LABEL_BITS =
  Math.log2(FIRST.length) + Math.log2(SECOND.length) + TAIL_LENGTH * Math.log2(ALPHABET.length)

/** Returns a random label that people can read and say, such as `amber-falcon-k7m2xqd`. */
export function randomLabel(): string {
  const tail = Array.from({ length: TAIL_LENGTH }, () => pick([...ALPHABET])).join('')
  return `${pick(FIRST)}-${pick(SECOND)}-${tail}`
}

function pick(choices: readonly string[]): string {
  return choices[randomInt(choices.length)] ?? ''
}

function words(text: string): readonly string[] {
  return [...new Set(text.trim().split(/\s+/))]
}
