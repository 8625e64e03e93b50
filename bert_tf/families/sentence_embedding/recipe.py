"""The settings of sentence embeddings."""

import dataclasses

from bert_tf.config import POOLINGS
from bert_tf.errors import UserError
from bert_tf.families.recipe import FinetuningRecipe, UserFilesRecipe
from bert_tf.recipe import like, setting

MULTIPLE_NEGATIVES = "multiple_negatives"
SYMMETRIC = "symmetric_multiple_negatives"
COSENT = "cosent"
CONTRASTIVE, ONLINE_CONTRASTIVE = "contrastive", "online_contrastive"
TRIPLET = "triplet"
SIMCSE = "simcse"
TEACHER_COSINE, TEACHER_MSE = "teacher_cosine", "teacher_mse"
MARGIN_MSE, KL_DIVERGENCE = "margin_mse", "kl_divergence"
# The classes of sentence-transformers, by name.
LOSSES = {
    MULTIPLE_NEGATIVES: "MultipleNegativesRankingLoss",
    SYMMETRIC: "MultipleNegativesSymmetricRankingLoss",
    COSENT: "CoSENTLoss",
    CONTRASTIVE: "ContrastiveLoss",
    ONLINE_CONTRASTIVE: "OnlineContrastiveLoss",
    TRIPLET: "TripletLoss",
    SIMCSE: "MultipleNegativesRankingLoss",
    TEACHER_COSINE: "EmbedDistillLoss",
    TEACHER_MSE: "EmbedDistillLoss",
    MARGIN_MSE: "MarginMSELoss",
    KL_DIVERGENCE: "DistillKLDivLoss",
}
# Other rows of a batch are negatives, so that no text may occur in it twice.
IN_BATCH_NEGATIVES = (MULTIPLE_NEGATIVES, SYMMETRIC, SIMCSE)
_OF_NEGATIVES = "num_hard_negatives"


@dataclasses.dataclass(frozen=True)
class EmbeddingRecipe(
    UserFilesRecipe,
    defaults={
        "learning_rate": 2e-5,
        "num_train_epochs": 1.0,
        "train_batch_size": 64,
    },
    unused=("bilstm", "reset_head", "teacher", "ensemble"),
):
    """Settings of sentence embeddings: columns, loss and modules.

    Usual values of sentence-transformers.
    """

    max_seq_length: int = like(
        FinetuningRecipe,
        "max_seq_length",
        help_text="longest text in tokens",
    )
    anchor_column: str = setting(
        "anchor", "column of the first text of a row, such as a query"
    )
    positive_column: str = setting(
        "positive",
        "column of the second text, similar to the first one unless a score "
        "or label says otherwise; the file may lack it",
    )
    negative_columns: str = setting(
        "",
        "columns of texts that are not similar to the anchor, comma-separated, "
        "or one of lists of them; empty is those called negative, negative_1, "
        "negative_2, ...",
    )
    score_column: str = setting(
        "score", "column of the similarity of both texts; may be missing"
    )
    label_column: str = setting(
        "label",
        "column of 1 for similar texts and 0 for others; may be missing",
    )
    teacher_column: str = setting(
        "teacher",
        "column of a teacher's vectors of texts, or of its scores of positive "
        "and negatives, in lists; may be missing",
    )
    score_range: str = setting(
        "0,1", "the smallest and the largest score, comma-separated"
    )
    loss: str = setting(
        "",
        f"{', '.join(LOSSES)}; empty is {MULTIPLE_NEGATIVES} of positives, "
        f"{COSENT} of scores, {CONTRASTIVE} of labels, {SIMCSE} of texts "
        f"alone, {TEACHER_COSINE} of a teacher's vectors and {MARGIN_MSE} of "
        "its scores",
        choices=("", *LOSSES),
        chosen_by_run=True,
    )
    similarity_scale: float = setting(
        20.0,
        f"factor of the cosine similarities in {MULTIPLE_NEGATIVES}, {COSENT} "
        f"and {SIMCSE}",
        above=0,
    )
    margin: float = setting(
        0.0,
        f"the least distance of texts that are not similar; 0 = 5 in {TRIPLET} "
        f"and 0.5 in {CONTRASTIVE}",
        at_least=0,
    )
    matryoshka_dims: str = setting(
        "",
        "Matryoshka: the loss is summed over the first numbers of the vectors, "
        "of these sizes, comma-separated, for example 384,256,128,64",
    )
    mini_batch_size: int = setting(
        0,
        "rows that are computed at a time, over all devices, in the memory of "
        "as many, with the loss of the whole batch (cached gradients); 0 = all",
        at_least=0,
        excludes="gradient_accumulation_steps",
    )
    pooling: str = setting(
        "",
        f"how vectors of tokens become one: {', '.join(POOLINGS)}, or several, "
        "comma-separated; empty is what init_from states, mean by default",
    )
    dense_size: int = setting(
        0,
        "size of the vectors after a dense layer, which is new unless "
        "init_from has one of this size; 0 keeps the modules of init_from",
        at_least=0,
    )
    dense_activation: str = setting(
        "tanh",
        "activation of a new dense layer",
        choices=("tanh", "linear", "relu", "gelu_erf"),
        requires="dense_size",
    )
    normalize: bool = setting(
        False, "scales vectors to length one, if init_from does not"
    )
    query_prompt: str = setting(
        "", "text before each anchor; empty is the prompt query of init_from"
    )
    document_prompt: str = setting(
        "",
        "text before each other text; empty is the prompt document of "
        "init_from",
    )
    num_hard_negatives: int = setting(
        0,
        "negatives of each anchor that are mined before training: the most "
        "similar of all positives, by init_from",
        at_least=0,
    )
    hard_negatives_range_min: int = setting(
        0,
        "number of the most similar texts that are skipped",
        at_least=0,
        requires=_OF_NEGATIVES,
    )
    hard_negatives_relative_margin: float = setting(
        0.0,
        "share of the positive's similarity by which a negative is less "
        "similar; 0 = any, 0.05 is usual",
        at_least=0,
        below=1,
        requires=_OF_NEGATIVES,
    )
    hard_negatives_max_score: float = setting(
        1.0,
        "the largest similarity of a negative; 1 = any",
        above=-1,
        at_most=1,
        requires=_OF_NEGATIVES,
    )

    def __post_init__(self) -> None:
        """Raises `UserError` for settings that do not fit each other."""
        super().__post_init__()
        size, batch = self.mini_batch_size, self.train_batch_size
        if size and batch % size:
            raise UserError(
                f"`mini_batch_size`={size}: does not divide "
                f"`train_batch_size`={batch}; give a divisor of it."
            )
        dims = self.dims
        if min(dims, default=1) < 1 or len({*dims}) < len(dims):
            raise UserError(
                f"`matryoshka_dims`={self.matryoshka_dims}: takes different "
                "numbers above 0, comma-separated, for example 256,128,64."
            )
        least, most = self.limits_of_scores
        if not least < most:
            raise UserError(
                f"`score_range`={self.score_range}: takes the smallest and "
                "the largest score, comma-separated, for example 0,5."
            )

    @property
    def num_slices(self) -> int:
        """See `TrainingRecipe`; `mini_batch_size` determines it too."""
        if not self.mini_batch_size:
            return self.gradient_accumulation_steps
        return self.train_batch_size // self.mini_batch_size

    @property
    def dims(self) -> tuple[int, ...]:
        """The values of `matryoshka_dims`; 0 is no number."""
        parts = self.matryoshka_dims.split(",") if self.matryoshka_dims else ()
        return tuple(int(p) if p.strip().isdecimal() else 0 for p in parts)

    @property
    def limits_of_scores(self) -> tuple[float, float]:
        """The values of `score_range`; both are 0 if they are no numbers."""
        try:
            least, most = map(float, self.score_range.split(","))
        except ValueError:
            return 0.0, 0.0
        return least, most
